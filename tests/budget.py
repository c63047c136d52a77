"""Processor time of each file of tests, kept in `tests/durations.toml`, and what has grown since then.

Processor time, not time by the clock: it is nearly the same beside other work. It is that of the worker
process and of all processes that descend from it, between the reports of two phases of tests; what a fixture
of the session takes counts for the first test that asks for it.
"""

import os
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

KEPT = Path(__file__).parent / "durations.toml"
SHOWN = 10
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Budget:
    """Plugin that measures in the processes that run tests, and adds up where reports come together."""

    def __init__(self, config: pytest.Config) -> None:
        self._spent = processor_seconds()
        self._by_file = defaultdict(float)
        self._writes = config.getoption("--write-durations")
        self._level = config.getoption("--points")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """Note in each report what the phase took."""
        report = yield
        spent = processor_seconds()
        report.processor_seconds = spent - self._spent
        self._spent = spent
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up by file, in the process in which the reports of all workers arrive."""
        self._by_file[report.nodeid.partition("::")[0]] += getattr(report, "processor_seconds", 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the durations, or name the files that have grown most since they were written."""
        if self._writes:
            _write(self._level, self._by_file)
            terminalreporter.write_line(f"{KEPT.name}: {sum(self._by_file.values()):.0f} s of processor time")
        elif os.environ.get("CI"):
            for line in _growth(self._by_file, _kept(self._level)):
                terminalreporter.write_line(line)


def processor_seconds() -> float:
    """Return what this process and all its descendants, ended or alive, have taken of processors."""
    own = os.times()
    ticks = sum(_ticks(pid) for pid in _descendants("self"))
    return own.user + own.system + own.children_user + own.children_system + ticks / _TICKS_PER_SECOND


def _descendants(pid: str) -> Iterator[str]:
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = path.read_text().split()
        except OSError:  # it has ended since
            continue
        for child in children:
            yield child
            yield from _descendants(child)


def _ticks(pid: str) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended since, and counts among the children that have
        return 0
    return sum(int(field) for field in fields[11:15])  # user and system, its own and of its ended children


def _kept(level: str) -> dict[str, float]:
    if not KEPT.exists():
        return {}
    return dict(tomllib.loads(KEPT.read_text(encoding="utf-8")).get(level, {}))


def _growth(spent: dict[str, float], kept: dict[str, float]) -> Iterator[str]:
    """Yield a line in all, and one for each of the files that take most seconds more than they did."""
    total, before = sum(spent.values()), sum(kept.values())
    yield f"{total:.0f} s of processor time in tests; {before:.0f} s when {KEPT.name} was written"
    growth = {file: seconds - kept.get(file, 0.0) for file, seconds in spent.items()}
    for file in sorted(growth, key=lambda file: -growth[file])[:SHOWN]:
        if growth[file] >= 1:
            yield f"  {growth[file]:+.1f} s, {spent[file]:.1f} s in all: {file}"


def _write(level: str, spent: dict[str, float]) -> None:
    levels = tomllib.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    levels[level] = spent
    lines = ["# Seconds of processor time by file, at each level of points; written by `make durations`."]
    for name, files in sorted(levels.items()):
        lines += ["", f"[{name}]"]
        lines += [f'"{file}" = {seconds:.1f}' for file, seconds in sorted(files.items()) if seconds >= 0.05]
    KEPT.write_text("\n".join(lines) + "\n", encoding="utf-8")
