"""Expected differences: tests of torch's suite that do not pass on our ranks, with a reason each.

A run is judged against them both ways: a test that fails and is not listed is a fault of ours, and one that
passes or is skipped though listed makes the list untrue.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from tools.torch_suite.outcome import Outcome

FILE = Path(__file__).with_name("expected.toml")
Place = Literal["processes", "threads"]
Ddp = Literal["torch", "ours"]
PLACES: tuple[Place, ...] = ("processes", "threads")
DDPS: tuple[Ddp, ...] = ("torch", "ours")
WORLD_SIZES: tuple[Literal[2, 3, 4], ...] = (2, 3, 4)


@dataclass(frozen=True)
class Run:
    """All tests, in one place, with one DDP, on so many ranks."""

    place: Place
    ddp: Ddp
    world_size: int

    def __str__(self) -> str:
        return f"{self.place}, {'our' if self.ddp == 'ours' else 'torch’s'} DDP, {self.world_size} ranks"


@dataclass(frozen=True)
class Difference:
    """Tests that fail for one reason, in the runs that it names.

    Attributes:
        tests: their names.
        reason: why, and what a user does instead.
        places: where.
        ddps: with whose DDP.
        world_sizes: on how many ranks.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    tests: Annotated[tuple[str, ...], Field(min_length=1)]
    reason: Annotated[str, Field(min_length=10)]
    places: tuple[Place, ...] = PLACES
    ddps: tuple[Ddp, ...] = DDPS
    world_sizes: tuple[Literal[2, 3, 4], ...] = WORLD_SIZES

    def applies(self, run: Run) -> bool:
        """Return whether *run* is one of those in which the tests fail."""
        return run.place in self.places and run.ddp in self.ddps and run.world_size in self.world_sizes


def load(file: Path = FILE) -> list[Difference]:
    """Read the list.

    Raises:
        ValueError: an entry has no reason, or a key or value that means nothing here.
    """
    return TypeAdapter(list[Difference]).validate_python(
        tomllib.loads(file.read_text()).get("difference", [])
    )


def judge(
    run: Run, outcomes: Iterable[Outcome], differences: Sequence[Difference], complete: bool = True
) -> list[str]:
    """Return what is wrong with *outcomes*, a line each.

    Args:
        run: that they are of.
        outcomes: of its tests.
        differences: the list.
        complete: whether the run was of all tests, so that those listed must be among them.
    """
    listed = {test for difference in differences if difference.applies(run) for test in difference.tests}
    by_test = {outcome.test: outcome for outcome in outcomes}
    faults = []
    for test, outcome in by_test.items():
        if outcome.result == "failed" and test not in listed:
            faults.append(f"{test} failed and is not listed: {last_line(outcome.detail)}")
        elif outcome.result != "failed" and test in listed:
            faults.append(f"{test} is listed and {outcome.result}: take it from the list")
    if complete:
        faults += [f"{test} is listed and was not run" for test in sorted(listed - by_test.keys())]
    return faults


def last_line(text: str) -> str:
    """Return the last line of a traceback that says what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Deadlock)\w*:", line)]
    return (errors or lines or [""])[-1]
