"""Tests of ``python -m benchmarks.fuzzing``."""

from collections import Counter

import pytest

from benchmarks import fuzzing
from testbed.errors import Terminated
from testbed.fuzzing.campaign import Tally


@pytest.mark.parametrize(
    ("tallies", "code"),
    [
        ([Tally(Counter(finished=3)), Tally(Counter(finished=3))], 0),
        ([Tally(Counter(finished=3)), Tally()], 1),
        ([Tally(Counter(finished=3)), Tally(Counter(refused=3))], 1),
        ([Tally(Counter(finished=3), lost=["seeds 0 to 9"]), Tally(Counter(finished=3))], 1),
        ([Tally(Counter(finished=3), interrupted=KeyboardInterrupt())], 130),
        ([Tally(Counter(finished=3), interrupted=Terminated())], 130),
    ],
)
def test_the_exit_code_is_0_only_where_something_of_every_script_was_checked(tallies, code, monkeypatch):
    def explore(*_, **__):
        return tallies.pop(0)

    monkeypatch.setattr(fuzzing, "explore", explore)
    monkeypatch.setattr(fuzzing, "SCRIPTS", fuzzing.SCRIPTS[: len(tallies)])
    monkeypatch.setattr("sys.argv", ["fuzzing"])

    assert fuzzing.main() == code
    assert not tallies


@pytest.mark.parametrize("arguments", [["--only", "nothing of that name"], ["--runs", "0"]])
def test_a_choice_of_nothing_is_refused(arguments, monkeypatch):
    monkeypatch.setattr("sys.argv", ["fuzzing", *arguments])

    with pytest.raises(SystemExit) as ended:
        fuzzing.main()

    assert ended.value.code == 2
