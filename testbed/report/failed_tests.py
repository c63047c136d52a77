"""Page of a run of tests: what failed, and the timelines of the ranks of what failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from collectives.formats.whole_file import write_whole
from sim import Trace
from testbed.output.table import counted
from testbed.plots.timeline import RankRow, Timeline, timeline_of
from testbed.result import Part, Plot, Result, Rows, Text, asked, found, quiet

COLUMNS = (*asked("test"), *found("said"))
MAX_PIECES = 40_000
"""Pieces of timelines that a page holds; tests that fail after that have none."""
MODEL = (
    "ranks are threads of one process in virtual time; collectives are carried out for real on a simulated "
    "network; computation takes time only where the test has compute="
)
_NOTE = "Until the test ended. Zoom with the wheel; ranks that did the same at the same times share a row."
_NONE = "No timeline: nothing took time on ranks in virtual time, or the test runs in every order of events."
_FULL = "No timeline: those above fill the page; run this test alone to see its own."


@dataclass(frozen=True)
class FailedTest:
    """A test that failed.

    Attributes:
        name: pytest's name of it.
        lines: what was raised, with the notes of ranks.
        timeline: of the last run on ranks, as `plain_rows` gives it.
    """

    name: str
    lines: Sequence[str]
    timeline: Sequence[Any]


def plain_rows(trace: Trace) -> list[Any]:
    """Return the timeline of *trace* in lists and numbers, which travel between processes."""
    return [
        [list(row.ranks), {track: [list(piece) for piece in lane] for track, lane in row.tracks.items()}]
        for row in timeline_of(trace).rows
    ]


def write_failures(path: Path, command: str, failed: Sequence[FailedTest], num_tests: int) -> None:
    """Write the page of a run of so many tests, which *command* repeats, to *path*.

    Raises:
        OSError: *path* cannot be written.
    """
    if failed:
        answer = f"{len(failed)} of {counted(num_tests, 'test')} failed."
    else:
        answer = f"{counted(num_tests, 'test')} ran, and none failed."
    result = Result(
        question="Which tests failed, and what did their ranks do?",
        answer=answer,
        method="simulated",
        model=MODEL,
        rows=Rows(COLUMNS, [{"test": own.name, "said": list(own.lines)} for own in failed]),
        body={"tests": num_tests},
        command=command,
        parts=list(_parts(failed)),
    )
    write_whole(path, result.to_html())


def _parts(failed: Sequence[FailedTest]) -> Iterator[Part]:
    left = MAX_PIECES
    for own in failed:
        yield Text(list(own.lines), own.name)
        pieces = sum(len(lane) for _, lanes in own.timeline for lane in lanes.values())
        if not pieces or pieces > left:
            yield quiet(_FULL if pieces else _NONE)
            continue
        left -= pieces
        name = own.name.rpartition("::")[2]
        yield Plot(partial(_described, own.timeline), f"Ranks of {name}", _NOTE)


def _described(plain: Sequence[Any]) -> Timeline:
    """Return the timeline that `plain_rows` has given."""
    return Timeline(
        [
            RankRow(
                ranks,
                {track: [(start, end, name) for start, end, name in lane] for track, lane in lanes.items()},
            )
            for ranks, lanes in plain
        ]
    )
