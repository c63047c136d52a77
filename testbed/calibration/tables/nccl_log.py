"""Logs of nccl-tests (and rccl-tests) as they are printed, read into rows.

A log says its collective (``# Collective test starting: all_reduce_perf``, or the command above it), its
ranks and their hosts (``#  Rank  0 Group  0 Pid 17 on node-0 device  0``) and a line for each size.  What
launchers print before the ``#`` or the figures (times, names of pods, ``0:``) is passed over; so are their
tags in brackets, wherever they stand, and lines of NCCL itself.

Source: NVIDIA/nccl-tests, src/util.cu, writeDeviceReport, writeResultHeader and writeBenchmarkLineBody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from testbed.calibration.tables.measured_row import MeasuredRow, collective_named
from testbed.errors import UsageError

_TEST = re.compile(r"\b(\w+)_perf\b")
_OTHERS = frozenset(("alltoallv", "bisection", "hypercube", "sendrecv"))
"""Tests of nccl-tests that are no collective of ours."""
_START = re.compile(r"#\s*nThread\s")
_TAG = re.compile(r"\[[^\[\]\s]*\](?:<std(?:out|err)>:)?")
_RANK = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device")
_HEAD = re.compile(r"#\s+(size\s+count\s+.*\b(?:cpu)?time\b.*)$")
_ROW = re.compile(r"(?:^|[\s:>|])(\d+\s+\d+\s+[a-z]\w*(?:\s+[-+.\w/:]+){3,})\s*$")
_MICRO = 1e-6
_MOST_DIGITS = 20


@dataclass
class _Table:
    """What is known while a log is read.

    Attributes:
        collective: that is measured; None: not said.
        columns: of its lines, by the head.
        hosts: of its ranks.
        groups: of ranks that are measured at once.
    """

    collective: str | None = None
    columns: list[str] = field(default_factory=list)
    hosts: dict[int, str] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)


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
        UsageError: the log does not say what was measured, or on how many ranks; its ranks knew nothing of
            each other; or it has no rows.
    """
    rows = list(_rows(text, system, collective, ranks, nodes))
    if not rows:
        raise UsageError(f"{system}: expected lines of nccl-tests with a size and times, found none")
    return rows


def _rows(
    text: str, system: str, collective: str | None, ranks: int | None, nodes: int | None
) -> Iterator[MeasuredRow]:
    table = _Table()
    for number, tagged in enumerate(text.splitlines(), start=1):
        line = _TAG.sub(" ", tagged)
        where = f"{system}, line {number}"
        _read_head(line, table, where)
        if not table.columns or "#" in line or not (found := _ROW.search(line)):
            continue

        cells = found[1].split()
        nbytes = _whole(cells[0], where)
        what, num_ranks, num_nodes = _what_was_measured(table, where, collective, ranks, nodes)
        if "time" not in table.columns:
            raise UsageError(
                f"{where}: expected a column time, got {' '.join(table.columns)}; a cputime (option -C of "
                "nccl-tests) is that of the host"
            )
        # Old versions leave redop or root empty: the figures are counted from the right then.
        time = table.columns.index("time") - max(0, len(table.columns) - len(cells))
        seconds = _seconds(cells, time, where)
        yield MeasuredRow(system, what, nbytes, num_nodes, num_ranks, seconds, line=number)


def _read_head(line: str, table: _Table, where: str) -> None:
    """Take what a *line* that is no row says of its *table*."""
    if test := _TEST.search(line):
        named = collective_named(test[1])
        if named is not None or test[1] in _OTHERS:
            table.collective = named
    if _START.search(line):
        table.hosts, table.columns, table.groups = {}, [], set()
    if rank := _RANK.search(line):
        number = _whole(rank[1], where)
        if number in table.hosts:
            raise UsageError(
                f"{where}: rank {number} stands twice: processes that know nothing of each other, each of "
                "which moved nothing; expected nccl-tests built with MPI=1"
            )
        table.hosts[number] = rank[3]
        table.groups.add(rank[2])
    if head := _HEAD.search(line):
        table.columns = head[1].split()


def _what_was_measured(
    table: _Table, where: str, collective: str | None, ranks: int | None, nodes: int | None
) -> tuple[str, int, int]:
    """Return the collective, ranks and nodes of a *table*; what it leaves open, options say.

    Raises:
        UsageError: nothing says one of them, or so many ranks measure nothing.
    """
    what = table.collective or collective
    num_ranks, num_nodes = len(table.hosts) or ranks, len(set(table.hosts.values())) or nodes
    if what is None:
        raise UsageError(f"{where}: the log does not say what was measured; give --collective")
    if num_ranks is None:
        raise UsageError(f"{where}: the log does not say on how many ranks; give --ranks")
    if num_nodes is None:
        raise UsageError(f"{where}: the log does not say on how many nodes; give --nodes")
    if len(table.groups) > 1:
        raise UsageError(
            f"{where}: {len(table.groups)} groups of ranks were measured at once (NCCL_TESTS_SPLIT); "
            "expected one"
        )
    if num_ranks < 2:
        raise UsageError(
            f"{where}: one rank alone moved nothing; expected two or more, which nccl-tests has on several "
            "processes if it is built with MPI=1"
        )
    if num_ranks % num_nodes:
        raise UsageError(f"{where}: {num_ranks} ranks on {num_nodes} nodes; expected equally many on each")
    return what, num_ranks, num_nodes


def _whole(text: str, where: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise UsageError(f"{where}: expected a size or rank, got {len(text)} digits")
    return int(text)


def _seconds(cells: list[str], column: int, where: str) -> float:
    try:
        return float(cells[column]) * _MICRO
    except (IndexError, ValueError):
        raise UsageError(f"{where}: expected a time in column {column + 1}, got {' '.join(cells)}") from None
