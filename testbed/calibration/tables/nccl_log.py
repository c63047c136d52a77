"""Logs of nccl-tests (and rccl-tests) as they are printed, read into rows.

A log says its collective (``# Collective test starting: all_reduce_perf``, or the command above it), its
ranks and their hosts (``#  Rank  0 Group  0 Pid 17 on node-0 device  0``) and a line for each size.  What
stands before the ``#`` or the figures, as launchers print it, is passed over; so are lines of NCCL itself.

Source: NVIDIA/nccl-tests, src/common.cu, writeDeviceReport and the heads of its tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from testbed.calibration.tables.measured_row import MeasuredRow, collective_named
from testbed.errors import UsageError

_TEST = re.compile(r"\b(\w+)_perf\b")
_START = re.compile(r"#\s*nThread\s")
_RANK = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device")
_HEAD = re.compile(r"#\s+(size\s+count\s+.*\btime\b.*)$")
_ROW = re.compile(r"(?:^|[:>\]])\s*(\d+(?:\s+[-+.\w/]+){4,})\s*$")
_MICRO = 1e-6
_MOST_DIGITS = 20


@dataclass
class _Table:
    """What is known while a log is read."""

    collective: str | None = None
    columns: list[str] = field(default_factory=list)
    hosts: dict[int, str] = field(default_factory=dict)


def is_log(text: str) -> bool:
    """Return whether *text* looks like a log of nccl-tests."""
    return any(_HEAD.search(line) for line in text.splitlines())


def read_log(
    text: str,
    system: str,
    *,
    collective: str | None = None,
    ranks: int | None = None,
    nodes: int | None = None,
) -> list[MeasuredRow]:
    """Return the rows of a log; its times are those out of place.

    Args:
        text: the log.
        system: name of the set of measurements.
        collective: what was measured, where the log does not say.
        ranks: how many, where the log does not say.
        nodes: how many, where the log does not say.

    Raises:
        UsageError: the log does not say what was measured, or on how many ranks; or it has no rows.
    """
    rows = list(_rows(text, system, collective, ranks, nodes))
    if not rows:
        raise UsageError(f"{system}: expected lines of nccl-tests with a size and times, found none")
    return rows


def _rows(
    text: str, system: str, collective: str | None, ranks: int | None, nodes: int | None
) -> Iterator[MeasuredRow]:
    table = _Table()
    for number, line in enumerate(text.splitlines(), start=1):
        if (test := _TEST.search(line)) and (named := collective_named(test[1])):
            table.collective = named
        if _START.search(line):
            table.hosts, table.columns = {}, []
        if rank := _RANK.search(line):
            table.hosts[_whole(rank[1], system, number)] = rank[2]
        if head := _HEAD.search(line):
            table.columns = head[1].split()
        if not table.columns or line.lstrip().startswith("#") or not (found := _ROW.search(line)):
            continue

        what = table.collective or collective
        num_ranks, num_nodes = len(table.hosts) or ranks, len(set(table.hosts.values())) or nodes
        for name, value, option in (
            ("what was measured", what, "--collective"),
            ("on how many ranks", num_ranks, "--ranks"),
            ("on how many nodes", num_nodes, "--nodes"),
        ):
            if value is None:
                raise UsageError(f"{system}, line {number}: the log does not say {name}; give {option}")
        assert what is not None
        assert num_ranks is not None
        assert num_nodes is not None
        if num_ranks % num_nodes:
            raise UsageError(
                f"{system}, line {number}: {num_ranks} ranks on {num_nodes} nodes; expected equally many on "
                "each"
            )

        if "time" not in table.columns:
            raise UsageError(f"{system}, line {number}: the head of its table names no column time")
        cells = found[1].split()
        # Old versions leave redop or root empty: the figures are counted from the right then.
        time = table.columns.index("time") - max(0, len(table.columns) - len(cells))
        yield MeasuredRow(
            system,
            what,
            _whole(cells[0], system, number),
            num_nodes,
            num_ranks,
            _seconds(cells, time, system, number),
            line=number,
        )


def _whole(text: str, system: str, line: int) -> int:
    if len(text) > _MOST_DIGITS:
        raise UsageError(f"{system}, line {line}: expected a size or rank, got {len(text)} digits")
    return int(text)


def _seconds(cells: list[str], column: int, system: str, line: int) -> float:
    try:
        return float(cells[column]) * _MICRO
    except (IndexError, ValueError):
        raise UsageError(
            f"{system}, line {line}: expected a time in column {column + 1}, got {' '.join(cells)}"
        ) from None
