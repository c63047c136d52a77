"""Faults of a virtual cluster as they are written on the command line."""

from __future__ import annotations

import pytest

from collectives.virtual.faults import DeadRank, MessageDelay
from testbed.errors import UsageError
from testbed.options.conditions import FaultOptions


def test_faults_are_read_as_they_are_written() -> None:
    faults = list(FaultOptions(["3@iteration=5", "1 @ 10ms"], "50us").parse(seed=7))

    assert faults == [DeadRank(3, iteration=5), DeadRank(1, at="10ms"), MessageDelay("50us", seed=7)]
    assert list(FaultOptions().parse(seed=7)) == []


@pytest.mark.parametrize("text", ["3", "3@", "x@1ms", "3@iteration=", "3@iteration=soon", "@1ms", "-1@1ms"])
def test_a_death_that_cannot_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected RANK@iteration=N or RANK@TIME, such as 3@iteration=5"):
        list(FaultOptions([text]).parse(seed=0))


def test_a_time_of_death_without_its_unit_names_what_it_is() -> None:
    with pytest.raises(ValueError, match="time of a rank's death: cannot read 'later'"):
        list(FaultOptions(["3@later"]).parse(seed=0))
