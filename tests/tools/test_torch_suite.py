"""A few tests of torch's own suite, so that its drivers work whenever ``make test-torch`` is called."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.torch_suite.outcome import read

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.distributed, pytest.mark.slow]


def results_of(place: str, ddp: str, folder: Path, *tests: str) -> dict[str, str]:
    """Run *tests* on two ranks and return what became of each."""
    out = folder / "outcomes.jsonl"
    command = [sys.executable, "-m", f"tools.torch_suite.{place}", "--world-size", "2"]
    subprocess.run([*command, "--ddp", ddp, "--out", str(out), *tests], cwd=ROOT, check=True, timeout=100)
    return {outcome.test: outcome.result for outcome in read(out)}


@pytest.mark.parametrize("ddp", ["torch", "ours"])
def test_processes_pass_tests_that_torch_has_for_gloo_and_for_mpi(tmp_path, ddp):
    passing = ["test_all_gather", "test_all_to_all_single_unequal_split", "test_ddp_create_graph"]

    results = results_of("processes", ddp, tmp_path, *passing, "test_barrier_cuda")

    assert results == {**dict.fromkeys(passing, "passed"), "test_barrier_cuda": "skipped"}


def test_rank_threads_pass_tests_that_torch_has_for_nccl_for_gloo_and_for_mpi(tmp_path):
    passing = ["test_barrier_cuda", "test_barrier", "test_all_to_all", "test_ddp_namedtuple"]

    results = results_of("threads", "torch", tmp_path, *passing, "test_barrier_timeout_arg")

    assert results == {**dict.fromkeys(passing, "passed"), "test_barrier_timeout_arg": "skipped"}
