"""Torch's own suite: the list of expected differences, and a few of its tests on each driver."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.torch_suite import expected
from tools.torch_suite.expected import Difference, Run, judge
from tools.torch_suite.outcome import Outcome, read

RUN = Run("processes", "torch", 4)
LISTED = Difference(("test_a",), "it needs something else", world_sizes=(4,))


def test_a_failure_that_is_listed_is_expected():
    assert judge(RUN, [Outcome("test_a", "failed"), Outcome("test_b", "passed")], [LISTED]) == []


def test_a_failure_that_is_not_listed_is_a_fault_and_says_why():
    failure = Outcome("test_b", "failed", "Traceback\n  somewhere\nValueError: no\n\nTo run it: …")

    (fault,) = judge(RUN, [Outcome("test_a", "failed"), failure], [LISTED])

    assert fault == "test_b failed and is not listed: ValueError: no"


@pytest.mark.parametrize("result", ["passed", "skipped"])
def test_a_test_that_no_longer_fails_makes_the_list_untrue(result):
    (fault,) = judge(RUN, [Outcome("test_a", result)], [LISTED])

    assert "test_a is listed" in fault


def test_a_listed_test_that_torch_no_longer_has_makes_the_list_untrue():
    assert judge(RUN, [], [LISTED]) == ["test_a is listed and was not run"]
    assert judge(RUN, [], [LISTED], complete=False) == []


def test_a_difference_counts_only_in_the_runs_that_it_names():
    assert judge(Run("processes", "torch", 2), [], [LISTED]) == []


@pytest.mark.parametrize(
    "entry",
    [
        'tests = ["test_a"]',
        'tests = []\nreason = "because of that"',
        'where = "x"\ntests = ["a"]\nreason = "so it is"',
    ],
)
def test_an_entry_without_tests_or_reason_or_with_an_unknown_key_is_refused(tmp_path, entry):
    file = tmp_path / "expected.toml"
    file.write_text(f"[[difference]]\n{entry}\n")

    with pytest.raises(ValueError, match="validation error"):
        expected.load(file)


ROOT = Path(__file__).parents[2]


def results_of(place: str, ddp: str, folder: Path, *tests: str) -> dict[str, str]:
    """Run *tests* on two ranks and return what became of each."""
    out = folder / "outcomes.jsonl"
    command = [sys.executable, "-m", f"tools.torch_suite.{place}", "--world-size", "2"]
    subprocess.run([*command, "--ddp", ddp, "--out", str(out), *tests], cwd=ROOT, check=True, timeout=100)
    return {outcome.test: outcome.result for outcome in read(out)}


@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.parametrize("ddp", ["torch", "ours"])
def test_processes_pass_tests_that_torch_has_for_gloo_and_for_mpi(tmp_path, ddp):
    passing = ["test_all_gather", "test_all_to_all_single_unequal_split", "test_ddp_create_graph"]

    results = results_of("processes", ddp, tmp_path, *passing, "test_barrier_cuda")

    assert results == {**dict.fromkeys(passing, "passed"), "test_barrier_cuda": "skipped"}


@pytest.mark.distributed
@pytest.mark.slow
def test_rank_threads_pass_tests_that_torch_has_for_nccl_for_gloo_and_for_mpi(tmp_path):
    passing = ["test_barrier_cuda", "test_barrier", "test_all_to_all", "test_ddp_namedtuple"]

    results = results_of("threads", "torch", tmp_path, *passing, "test_barrier_timeout_arg")

    assert results == {**dict.fromkeys(passing, "passed"), "test_barrier_timeout_arg": "skipped"}
