"""A page of the tests that failed, kept while pytest runs.

Pytest finds `_collective_testbed_entry`, which loads this with ``--testbed-html``.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sim import Trace
    from testbed.report.failed_tests import FailedTest

MAX_LINES = 60
"""Lines of what a test says of its failure; the terminal has all."""


def begin_page(config: pytest.Config, path: Path, option: str) -> None:
    """Begin the page *path*, which *option* asks for.

    Raises:
        pytest.UsageError: it cannot be written.
    """
    from testbed.errors import UsageError
    from testbed.result.page import check_page

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
        from testbed.testing import TRACES

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
        from testbed.report.failed_tests import plain_rows

        report = yield
        kept = report.__dict__  # reports carry it from xdist's processes, too
        if report.failed and call.excinfo is not None:
            kept["testbed_said"] = [*call.excinfo.exconly(tryshort=True).splitlines(), *_place(report)]
        if report.failed and call.when == "call" and self._traces:
            kept["testbed_timeline"] = plain_rows(self._traces[-1])
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        from testbed.report.failed_tests import FailedTest

        self.ended.add(report.nodeid)
        if report.failed:
            said = getattr(report, "testbed_said", None) or report.longreprtext.splitlines()
            timeline = getattr(report, "testbed_timeline", ())
            self.failed.append(FailedTest(report.nodeid, _shortened(said), timeline))

    def pytest_sessionfinish(self) -> None:
        from testbed.report.failed_tests import write_failures

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
