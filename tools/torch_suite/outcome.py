"""Outcomes of torch's own tests, as a driver writes them: one line of JSON for each test."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Result = Literal["passed", "skipped", "failed"]


@dataclass(frozen=True)
class Outcome:
    """What became of one test.

    Attributes:
        test: its name.
        result: of all ranks together.
        detail: why it was skipped or failed.
        seconds: that it took.
    """

    test: str
    result: Result
    detail: str = ""
    seconds: float = 0.0


def write(file: Path, outcome: Outcome) -> None:
    """Add *outcome* to *file*, so that a driver that dies leaves what it had."""
    with file.open("a") as lines:
        lines.write(json.dumps(asdict(outcome)) + "\n")


def read(file: Path) -> list[Outcome]:
    """Return the outcomes in *file*; none if no test has ended."""
    if not file.exists():
        return []
    return [Outcome(**json.loads(line)) for line in file.read_text().splitlines()]
