"""The list of expected differences, and how a run is judged by it."""

import pytest

from tools.torch_suite import expected
from tools.torch_suite.expected import Difference, Run, judge
from tools.torch_suite.outcome import Outcome

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
