"""A page of the tests that failed, with the timelines of their ranks, kept while pytest runs.

Pytest finds `_collective_testbed_entry`, which loads this with ``--testbed-html``.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from collectives.formats.whole_file import write_whole
from sim import Trace
from testbed.errors import UsageError
from testbed.output.table import counted
from testbed.plots.timeline import RankRow, Timeline, timeline_of
from testbed.result import Part, Plot, Result, Rows, Text, asked, found, quiet
from testbed.result.page import check_page
from testbed.testing import TRACES

MAX_LINES = 60
"""Lines of what a test says of its failure; the terminal has all."""


def begin_page(config: pytest.Config, path: Path, option: str) -> None:
    """Begin the page *path*, which *option* asks for.

    Raises:
        pytest.UsageError: it cannot be written.
    """
    try:
        check_page(path)
    except UsageError as error:
        raise pytest.UsageError(str(error).replace("--html", option)) from None
    command = shlex.join(["pytest", *map(str, config.invocation_params.args)])
    config.pluginmanager.register(_FailurePage(path, command, writes=not hasattr(config, "workerinput")))


class _FailurePage:
    """Keeps what failed, and writes it when all tests have ended.

    Under xdist tests run in other processes: their timelines travel in pytest's reports.
    """

    def __init__(self, path: Path, command: str, *, writes: bool) -> None:
        self.path = path
        self.command = command
        self.writes = writes
        self.failed: list[FailedTest] = []
        self.ended: set[str] = set()
        self._traces: list[Trace] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None]:
        __tracebackhide__ = True
        self._traces = []
        token = TRACES.set(self._traces)
        try:
            return (yield)
        finally:
            TRACES.reset(token)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        kept = report.__dict__  # reports carry it from xdist's processes, too
        if report.failed and call.excinfo is not None:
            kept["testbed_said"] = [*call.excinfo.exconly(tryshort=True).splitlines(), *_place(report)]
        if report.failed and call.when == "call" and self._traces:
            kept["testbed_timeline"] = plain_rows(self._traces[-1])
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ended.add(report.nodeid)
        if report.failed:
            said = getattr(report, "testbed_said", None) or report.longreprtext.splitlines()
            timeline = getattr(report, "testbed_timeline", ())
            self.failed.append(FailedTest(report.nodeid, _shortened(said), timeline))

    def pytest_sessionfinish(self) -> None:
        if self.writes:
            write_failures(self.path, self.command, self.failed, len(self.ended))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.writes:
            terminalreporter.write_line(f"Page of what failed: {self.path}")


def _place(report: pytest.TestReport) -> list[str]:
    """Return the line that raised, as pytest shows it last; none where it shows no line."""
    entries = getattr(getattr(report.longrepr, "reprtraceback", None), "reprentries", ())
    place = getattr(entries[-1], "reprfileloc", None) if entries else None
    return [] if place is None else [f"{place.path}:{place.lineno}"]


def _shortened(said: list[str]) -> list[str]:
    """Return no more than `MAX_LINES` of what is said."""
    return said if len(said) <= MAX_LINES else [*said[:MAX_LINES], "…"]


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
        rows=Rows.of(COLUMNS, ((own.name, list(own.lines)) for own in failed)),
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
