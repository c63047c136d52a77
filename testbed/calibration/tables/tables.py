"""Tables of measured collectives: files of nccl-tests, JSON of `testbed bench`, and CSV, as rows.

A log says its collective (``# Collective test starting: all_reduce_perf``, or the command above it), its
ranks and their hosts (``#  Rank  0 Group  0 Pid 17 on node-0 device  0``) and a line for each size.  What
launchers print before the ``#`` or the figures (times, names of pods, ``0:``) is passed over; so are their
tags in brackets, wherever they stand, and lines of NCCL itself.  Docker keeps each line in a JSON object.

| file | written by | says |
|---|---|---|
| an object with ``results`` and ``config`` | nccl-tests, option ``-J`` | all |
| a list of objects, or a CSV, with ``numCycle`` and ``busBw`` | rccl-tests, option ``-x`` | all |

Times are microseconds, those out of place.

Source: NVIDIA/nccl-tests, src/util.cu, writeDeviceReport, writeResultHeader, jsonOutputInit to
writeBenchmarkLineBody; ROCm/rccl-tests#93.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Annotated, Any, TypeVar

from pydantic import AliasChoices, BaseModel, Field, ValidationError

from collectives.catalogue.measured_times import TimesDocument
from collectives.formats.json_document import parse_json, parse_json_document, problems, read_bytes
from testbed.calibration.tables.rows import MICRO, MeasuredRow, Table, collective_named, systems_beside
from testbed.errors import UsageError
from testbed.options.arguments import TableOptions

_TEST = re.compile(r"\b(\w+)_perf\b")
_OTHERS = frozenset(("alltoallv", "bisection", "hypercube", "sendrecv"))
"""Tests of nccl-tests that are no collective of ours."""
_START = re.compile(r"#\s*nThread\s")
_TAG = re.compile(r"\x1b\[[\d;]*[A-Za-z]|\[[^\[\]\s]*\](?:<std(?:out|err)>:)?")
_LEFT_EMPTY = 2
"""So many columns, redop and root, old versions leave empty; a row that lacks more is torn."""
_RANK = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device")
_HEAD = re.compile(r"#\s+(size\s+count\s+.*\b(?:cpu)?time\b.*)$")
_ROW = re.compile(r"(?:^|[\s:>|])(\d+\s+\d+\s+[a-z]\w*(?:\s+[-+.\w/:]+){3,})\s*$")
_OF_DOCKER = re.compile(r'\s*\{"log":')
RCCL_COLUMNS = frozenset(("numCycle", "name", "ranks", "size", "inPlace", "time", "busBw"))
"""Columns by which a file of rccl-tests is known."""
Model = TypeVar("Model", bound=BaseModel)


def is_log(text: str) -> bool:
    """Return whether *text* looks like a log of nccl-tests."""
    return any(_HEAD.search(line) for line in text.splitlines())


@dataclass
class _Head:
    """What is known while a log is read.

    Attributes:
        collective: that is measured; None: not said.
        columns: of its lines, by the head.
        hosts: of its ranks.
        groups: of ranks that are measured at once.
    """

    collective: str | None = None
    columns: list[str] = field(default_factory=list)
    hosts: dict[str, str] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)

    def read(self, line: str, where: str) -> None:
        """Take what a *line* that is no row says of those below it."""
        if test := _TEST.search(line):
            named = collective_named(test[1])
            if named is not None or test[1] in _OTHERS:
                self.collective = named
        if _START.search(line):
            self.hosts, self.columns, self.groups = {}, [], set()
        if rank := _RANK.search(line):
            if rank[1] in self.hosts:
                raise UsageError(
                    f"{where}: rank {rank[1]} stands twice: processes that know nothing of each other, each "
                    "of which moved nothing; expected nccl-tests built with MPI=1"
                )
            self.hosts[rank[1]] = rank[3]
            self.groups.add(rank[2])
        if head := _HEAD.search(line):
            self.columns = head[1].split()


def log_rows(table: Table, text: str) -> Iterator[MeasuredRow]:
    """Yield the rows of a log.

    Raises:
        UsageError: nothing says what was measured, or on how many ranks; or they knew nothing of each other.
    """
    head = _Head()
    for number, tagged in enumerate(text.splitlines(), start=1):
        line, where = _TAG.sub(" ", tagged), table.where(number)
        head.read(line, where)
        if not head.columns or "#" in line or not (found := _ROW.search(line)):
            continue
        cells = found[1].split()
        if "time" not in head.columns:
            raise UsageError(
                f"{where}: expected a column time, got {' '.join(head.columns)}; a cputime (option -C of "
                "nccl-tests) is that of the host"
            )
        if not head.hosts and table.said.nodes is None:
            raise UsageError(f"{where}: nothing says on how many nodes: give --nodes")
        missing = max(0, len(head.columns) - len(cells))  # the figures are counted from the right then
        if missing > _LEFT_EMPTY:
            continue
        if "#wrong" in head.columns:
            _check_right(cells[head.columns.index("#wrong") - missing], where)
        column = head.columns.index("time") - missing
        time = cells[column] if column < len(cells) else found[1]
        where_they_ran = _hosts(where, list(head.hosts.values()), len(head.groups))
        yield table.row(
            number, MICRO, collective=head.collective, size_bytes=cells[0], time=time, **where_they_ran
        )


def _check_right(num_wrong: str | float | None, where: str) -> None:
    """Check that no element came out wrong, as far as that was looked at (``N/A``, null: it was not)."""
    try:
        is_right = num_wrong is None or float(num_wrong) == 0
    except ValueError:
        return
    if not is_right:
        raise UsageError(
            f"{where}: {num_wrong} elements came out wrong, so this is no measurement of a collective; "
            "expected 0"
        )


def _hosts(where: str, hosts: Sequence[str], groups: int) -> dict[str, int | None]:
    """Return on how many ranks and nodes something ran, None where there are no *hosts* that say it."""
    if groups > 1:
        raise UsageError(
            f"{where}: {groups} groups of ranks were measured at once (NCCL_TESTS_SPLIT); expected one"
        )
    return {"ranks": len(hosts) or None, "nodes": len(set(hosts)) or None}


class _Device(BaseModel):
    """A rank of nccl-tests."""

    rank: int
    group: int = 0
    hostname: str


class _Timing(BaseModel):
    """Out of place, or in place; ``cpu_time`` stands instead where the host's was asked for."""

    time: float | None = None
    nwrong: float | None = None


class _Result(BaseModel):
    """A size of nccl-tests."""

    size: Annotated[int, Field(ge=0)]
    out_of_place: _Timing | None = None


class _Config(BaseModel):
    """How nccl-tests was run."""

    devices: list[_Device] | None = None


class _Document(BaseModel):
    """What nccl-tests writes."""

    args: list[str] = []
    config: _Config
    devices: list[_Device] | None = None
    results: list[_Result]


class _RcclRow(BaseModel):
    """A line of rccl-tests."""

    name: str
    nodes: Annotated[int, Field(ge=1)]
    ranks: Annotated[int, Field(ge=1)]
    gpus: Annotated[int, Field(ge=1, alias="gpusPerRank")] = 1
    size: Annotated[int, Field(ge=0)]
    in_place: Annotated[int, Field(alias="inPlace")]
    time: float
    wrong: str | float | None = Field(None, validation_alias=AliasChoices("#wrong", "wrong"))


def is_nccl_document(content: Any) -> bool:
    """Return whether the JSON value *content* is a file of nccl-tests or rccl-tests."""
    if isinstance(content, list):
        return bool(content) and isinstance(content[0], dict) and content[0].keys() >= RCCL_COLUMNS
    return isinstance(content, dict) and content.keys() >= {"results", "config"}


def document_rows(table: Table, content: Any) -> Iterator[MeasuredRow]:
    """Yield the rows of a JSON value that `is_nccl_document`.

    Raises:
        UsageError: a field is wrong, or something is not said.
    """
    file = str(table.path)
    if isinstance(content, list):
        yield from rccl_rows(table, content)
    else:
        document = _valid(_Document, content, file, "a file of nccl-tests (-J)")
        devices = document.devices or document.config.devices or []
        hosts = _hosts(file, [own.hostname for own in devices], len({own.group for own in devices}))
        tests = [PurePath(word).name for word in document.args[:1]]
        for number, result in enumerate(document.results, start=1):
            if result.out_of_place is None:
                continue
            if (time := result.out_of_place.time) is None:
                raise UsageError(
                    f"{file}: results {number}: expected a time, got none; a cpu_time (option -C) is the "
                    "host's"
                )
            _check_right(result.out_of_place.nwrong, f"{file}: results {number}")
            said = {"collective": tests[0] if tests else None, "size_bytes": result.size, **hosts}
            yield table.row(number, MICRO, **said, time=time)


def rccl_rows(table: Table, lines: Sequence[Mapping[str, Any]], first_line: int = 1) -> Iterator[MeasuredRow]:
    """Yield the rows of *lines* of rccl-tests, each with `RCCL_COLUMNS`.

    Raises:
        UsageError: a field is wrong.
    """
    for number, line in enumerate(lines, start=first_line):
        row = _valid(_RcclRow, line, table.where(number), "a line of rccl-tests")
        if not row.in_place:
            _check_right(row.wrong, table.where(number))
            ranks = row.ranks * row.gpus
            said = {"collective": row.name, "size_bytes": row.size, "ranks": ranks, "nodes": row.nodes}
            yield table.row(number, MICRO, **said, time=row.time)


def _valid(model: type[Model], content: Any, where: str, what: str) -> Model:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise UsageError(f"{where}: expected {what}: {problems(error)}") from None


_NAMES = {
    "size_bytes": ("size_bytes", "nbytes", "bytes", "size"),
    "time": ("time_us", "time_ms", "time_s", "seconds", "measured_seconds"),
    "set": ("set", "system", "name"),
    "collective": ("collective",),
    "ranks": ("ranks", "num_ranks", "nranks", "gpus", "world_size"),
    "nodes": ("nodes", "num_nodes", "nnodes"),
    "ranks_per_node": ("ranks_per_node", "gpus_per_node"),
    "algorithm": ("algorithm",),
}
_UNITS = {"time_us": 1e-6, "time_ms": 1e-3, "time_s": 1.0, "seconds": 1.0, "measured_seconds": 1.0}


def read_table(path: Path, said: TableOptions | None = None) -> list[MeasuredRow]:
    """Return the rows of the table at *path*, whatever its format; those of 0 bytes moved nothing.

    Raises:
        UsageError: it is no such table, a value is wrong, or something is not said; names file and line.
        OSError: it cannot be read.
    """
    try:
        text = read_bytes(path, UsageError).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: expected text in UTF-8: {error}") from None
    rows = [row for row in _rows(path, text, said or TableOptions()) if row.nbytes]
    if not rows:
        raise UsageError(f"{path}: expected rows out of place with a size above 0 bytes, found none")
    return rows


def _rows(path: Path, text: str, said: TableOptions) -> Iterator[MeasuredRow]:
    own, of_nccl = Table(path, said), Table(path, said, least_ranks=2)
    if _OF_DOCKER.match(text):
        text = "".join(_logged(line, own.where(number)) for number, line in enumerate(text.splitlines(), 1))
    if text.lstrip().startswith(("{", "[{")):
        content = parse_json(text.encode(), str(path), UsageError)
        is_of_nccl = is_nccl_document(content)
        return document_rows(of_nccl, content) if is_of_nccl else _bench(own, text, content)
    if is_log(text):
        return log_rows(of_nccl, text)
    reader = csv.DictReader(text.splitlines())
    if set(reader.fieldnames or ()) >= RCCL_COLUMNS:
        return rccl_rows(of_nccl, list(reader), first_line=2)
    return _csv(Table(path, said, systems_beside(path)), reader)


def _logged(line: str, where: str) -> str:
    """Return what Docker has kept in a *line*."""
    kept = parse_json(line.encode(), where, UsageError) if line.strip() else {"log": ""}
    if not isinstance(kept, dict) or not isinstance(kept.get("log"), str):
        raise UsageError(f"{where}: expected an object with log, as Docker keeps a line")
    return str(kept["log"])


def _csv(table: Table, reader: csv.DictReader[str]) -> Iterator[MeasuredRow]:
    columns = {
        what: next((name for name in names if name in (reader.fieldnames or ())), None)
        for what, names in _NAMES.items()
    }
    for what in ("size_bytes", "time"):
        if columns[what] is None:
            raise UsageError(
                f"{table.path}: line 1: expected a column {' or '.join(_NAMES[what])}, got "
                f"{', '.join(reader.fieldnames or ('nothing',))}"
            )
    unit = _UNITS[columns["time"] or "time_us"]
    for cells in reader:
        found = {what: (cells.get(name) or "").strip() for what, name in columns.items() if name}
        if found["time"]:
            yield table.row(reader.line_num, unit, **found)


def _bench(table: Table, text: str, content: Any) -> Iterator[MeasuredRow]:
    """Yield the rows of a document of `testbed bench --json`."""
    if isinstance(content, dict) and content.get("transport") == "sim":
        raise UsageError(f"{table.path}: its times are simulated; expected those of a real transport")
    what = (
        "what testbed bench --json prints, with transport, ranks and rows, or a file of nccl-tests (-J, with "
        "config and results) or rccl-tests (-x)"
    )
    document = parse_json_document(text.encode(), str(table.path), TimesDocument, UsageError, what)
    for number, row in enumerate(document.rows, start=1):
        own = {"collective": row.collective, "algorithm": row.algorithm, "size_bytes": row.size_bytes}
        yield table.row(number, MICRO, **own, ranks=document.ranks, time=row.time_us)
