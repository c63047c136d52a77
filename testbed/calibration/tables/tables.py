"""Tables of measured collectives: logs of nccl-tests, JSON of `testbed bench`, and CSV, as rows.

A CSV has a line of column names.  It must have a size and a time; what else it does not say, options say,
or a file of systems beside it (`testbed.calibration.tables.rows`):

| column | other names | means |
|---|---|---|
| ``size_bytes`` | ``nbytes``, ``bytes``, ``size`` | of the buffer, as nccl-tests counts it |
| ``time_us`` | ``time_ms``, ``time_s``, ``seconds``, ``measured_seconds`` | of one call, out of place |
| ``set`` | ``system``, ``name`` | the set of measurements that it belongs to; by default the file's name |
| ``collective`` | | what was carried out |
| ``ranks`` | ``num_ranks``, ``nranks``, ``gpus``, ``world_size`` | how many took part |
| ``nodes`` | ``num_nodes``, ``nnodes`` | on how many nodes |
| ``ranks_per_node`` | ``gpus_per_node`` | how many on each, instead of the above |
| ``algorithm`` | | how; ``native``, the library's own, unless it says otherwise |

A log of nccl-tests (or rccl-tests) is taken as it is printed.  It says its collective (``# Collective test
starting: all_reduce_perf``, or the command above it), its ranks and their hosts (``#  Rank  0 Group  0 Pid 17
on node-0 device  0``) and a line for each size, whose time out of place counts.  What stands before the ``#``
or the figures, as launchers print it, is passed over; so are lines of NCCL itself.

Source: NVIDIA/nccl-tests, src/common.cu, writeDeviceReport and the heads of its tables.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from collectives.catalogue.measured_times import MAX_RANKS, TimesDocument
from collectives.formats.json_document import parse_json, parse_json_document, problems, read_bytes
from collectives.program.contracts import CONTRACTS
from testbed.calibration.tables.rows import MeasuredRow, System, collective_named, systems_beside
from testbed.errors import UsageError

MAX_SECONDS = 1e6
MAX_BYTES = 2**62
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
_TEST = re.compile(r"\b(\w+)_perf\b")
_START = re.compile(r"#\s*nThread\s")
_RANK = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device")
_HEAD = re.compile(r"#\s+(size\s+count\s+.*\btime\b.*)$")
_ROW = re.compile(r"(?:^|[:>\]])\s*(\d+(?:\s+[-+.\w/]+){4,})\s*$")


@dataclass(frozen=True)
class Said:
    """What options say of a table that does not say it itself.

    Attributes:
        collective: what was carried out.
        ranks: how many took part.
        nodes: on how many nodes.
    """

    collective: str | None = None
    ranks: int | None = None
    nodes: int | None = None


def _collective(name: str) -> str:
    if (collective := collective_named(name)) is None:
        raise ValueError(f"expected one of {', '.join(CONTRACTS)}, got {name[:40]!r}")
    return collective


def _whole(number: float) -> int:
    if not number.is_integer():
        raise ValueError(f"expected a whole number, got {number:g}")
    return int(number)


_Whole: TypeAlias = Annotated[float, AfterValidator(_whole)]


class _Fields(BaseModel):
    """What is known of a row, in text or numbers."""

    model_config = ConfigDict(allow_inf_nan=False)

    collective: Annotated[str, AfterValidator(_collective)]
    size_bytes: Annotated[_Whole, Field(ge=0, le=MAX_BYTES)]
    nodes: Annotated[_Whole, Field(ge=1, le=MAX_RANKS)]
    ranks: Annotated[_Whole, Field(ge=1, le=MAX_RANKS)]
    time: Annotated[float, Field(gt=0, le=MAX_SECONDS)]


@dataclass(frozen=True)
class _Table:
    """A table that is being read: its file, what options say of it, and what a file beside it does."""

    path: Path
    said: Said
    systems: Mapping[str, System]

    def row(self, line: int, unit: float, **found: Any) -> MeasuredRow:
        """Return the row of which *found* is said in *line*; what is not, its system says, else options do.

        Raises:
            UsageError: nothing says it, or it cannot be; names file, line and field.
        """
        where, name = f"{self.path}: line {line}", found.get("set") or self.path.stem
        system = self.systems.get(name)
        known = {
            "collective": system.collective if system else self.said.collective,
            "ranks": system.num_ranks if system else self.said.ranks,
            "nodes": system.num_nodes if system else self.said.nodes,
            **{what: value for what, value in found.items() if value},
        }
        per_node = str(found.get("ranks_per_node"))
        if per_node.isdecimal() and known["ranks"] and not found.get("nodes"):
            known["nodes"] = -(-int(known["ranks"]) // max(1, int(per_node)))
        for what in ("collective", "ranks"):
            if known[what] is None:
                raise UsageError(
                    f"{where}: nothing says the {what} of {name}: not the table, no option --{what}, and no "
                    "file of systems beside the table knows it"
                )
        try:
            fields = _Fields.model_validate(
                {**known, "nodes": known["nodes"] or 1, "time": _scaled(found["time"], unit)}
            )
        except ValidationError as error:
            raise UsageError(f"{where}: {problems(error)}") from None
        if fields.ranks % fields.nodes:
            raise UsageError(
                f"{where}: {fields.ranks:g} ranks on {fields.nodes:g} nodes; expected equally many on each: "
                "--nodes"
            )
        return MeasuredRow(
            name,
            fields.collective,
            int(fields.size_bytes),
            int(fields.nodes),
            int(fields.ranks),
            fields.time,
            found.get("algorithm") or "native",
            line,
        )


def _scaled(time: Any, unit: float) -> Any:
    """Return *time* in seconds, or as it is if it is no number."""
    try:
        return float(time) * unit
    except ValueError:
        return time


def read_table(path: Path, said: Said | None = None) -> list[MeasuredRow]:
    """Return the rows of the table at *path*, whatever its format.

    Raises:
        UsageError: it is no such table, a value is wrong, or something is not said; names file and line.
        OSError: it cannot be read.
    """
    try:
        text = read_bytes(path, UsageError).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: expected text in UTF-8: {error}") from None
    said = said or Said()
    if text.lstrip().startswith("{"):
        return list(_bench(_Table(path, said, {}), text))
    if any(_HEAD.search(line) for line in text.splitlines()):
        rows = list(_log(_Table(path, said, {}), text))
        expected = "lines of nccl-tests with a size and times"
    else:
        rows = list(_csv(_Table(path, said, systems_beside(path)), text))
        expected = "rows below the names of the columns"
    if not rows:
        raise UsageError(f"{path}: expected {expected}, found none")
    return rows


def _csv(table: _Table, text: str) -> Iterator[MeasuredRow]:
    reader = csv.DictReader(text.splitlines())
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


def _log(table: _Table, text: str) -> Iterator[MeasuredRow]:
    collective: str | None = None
    columns: list[str] = []
    hosts: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if (test := _TEST.search(line)) and collective_named(test[1]):
            collective = test[1]
        if _START.search(line):
            hosts, columns = {}, []
        if rank := _RANK.search(line):
            hosts[rank[1]] = rank[2]
        if head := _HEAD.search(line):
            columns = head[1].split()
        if not columns or line.lstrip().startswith("#") or not (found := _ROW.search(line)):
            continue
        if "time" not in columns:
            raise UsageError(f"{table.path}: line {number}: the head of its table names no column time")
        if not hosts and table.said.nodes is None:
            raise UsageError(
                f"{table.path}: line {number}: the log does not say on how many nodes; give --nodes"
            )
        cells = found[1].split()
        # Old versions leave redop or root empty: the figures are counted from the right then.
        column = columns.index("time") - max(0, len(columns) - len(cells))
        yield table.row(
            number,
            1e-6,
            collective=collective,
            size_bytes=cells[0],
            ranks=len(hosts),
            nodes=len(set(hosts.values())),
            time=cells[column] if column < len(cells) else found[1],
        )


def _bench(table: _Table, text: str) -> Iterator[MeasuredRow]:
    """Yield the rows of a document of `testbed bench --json`."""
    content = parse_json(text.encode(), str(table.path), UsageError)
    if isinstance(content, dict) and content.get("transport") == "sim":
        raise UsageError(f"{table.path}: its times are simulated; expected those of a real transport")
    what = "what testbed bench --json prints, with transport, ranks and rows"
    document = parse_json_document(text.encode(), str(table.path), TimesDocument, UsageError, what)
    for number, row in enumerate(document.rows, start=1):
        own = {"collective": row.collective, "algorithm": row.algorithm, "size_bytes": row.size_bytes}
        yield table.row(number, 1e-6, **own, ranks=document.ranks, time=row.time_us)
