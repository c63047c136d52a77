"""Tables of measured collectives: logs and files of nccl-tests, JSON of `testbed bench`, and CSV, as rows.

A CSV of one's own has a line of column names.  It must have a size and a time; what else it does not say,
options say, or a file of systems beside it (`testbed.calibration.tables.systems`):

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
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectives.catalogue.measured_times import MAX_RANKS, TimesDocument
from collectives.formats.json_document import parse_json, parse_json_document, read_bytes, spell
from testbed.calibration.tables.measured_row import KNOWN, MeasuredRow, collective_named
from testbed.calibration.tables.nccl_files import (
    RCCL_COLUMNS,
    is_nccl_document,
    read_nccl_document,
    read_rccl_rows,
)
from testbed.calibration.tables.nccl_log import is_log, read_log
from testbed.calibration.tables.systems import System, systems_beside
from testbed.errors import UsageError

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
MAX_SECONDS = 1e6
MAX_BYTES = 2**62
_UNITS = {"time_us": 1e-6, "time_ms": 1e-3, "time_s": 1.0, "seconds": 1.0, "measured_seconds": 1.0}


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


def read_table(path: Path, said: Said | None = None) -> list[MeasuredRow]:
    """Return the rows of the table at *path*, whatever its format.

    Raises:
        UsageError: it is no such table, a value is wrong, or something is not said; names file and line.
        OSError: it cannot be read.
    """
    said = said or Said()
    try:
        text = read_bytes(path, UsageError).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: expected text in UTF-8: {error}") from None
    if text.lstrip().startswith(("{", "[{")):
        return _checked(path, _json(path, text, said))
    if is_log(text):
        rows = read_log(text, path.stem, collective=said.collective, ranks=said.ranks, nodes=said.nodes)
        return _checked(path, rows)
    return _checked(path, _csv(path, text, said))


def _json(path: Path, text: str, said: Said) -> list[MeasuredRow]:
    content = parse_json(text.encode(), str(path), UsageError)
    if not is_nccl_document(content):
        return _bench(path, text, content, said)
    return read_nccl_document(
        content, str(path), path.stem, collective=said.collective, ranks=said.ranks, nodes=said.nodes
    )


def _csv(path: Path, text: str, said: Said) -> list[MeasuredRow]:
    reader = csv.DictReader(text.splitlines())
    if set(reader.fieldnames or ()) >= RCCL_COLUMNS:
        return read_rccl_rows(list(reader), str(path), path.stem, first_line=2)
    columns = {
        what: next((name for name in names if name in (reader.fieldnames or ())), None)
        for what, names in _NAMES.items()
    }
    for what in ("size_bytes", "time"):
        if columns[what] is None:
            raise UsageError(
                f"{path}: line 1: expected a column {' or '.join(_NAMES[what])}, got "
                f"{', '.join(reader.fieldnames or ('nothing',))}"
            )

    systems = systems_beside(path)
    rows = []
    for cells in reader:
        found = {what: (cells.get(name) or "").strip() for what, name in columns.items() if name}
        where = f"{path}: line {reader.line_num}"
        if found["time"]:
            unit = _UNITS[columns["time"] or "time_us"]
            rows.append(_row(where, reader.line_num, path.stem, found, unit, systems, said))
    if not rows:
        raise UsageError(f"{path}: expected rows below the names of the columns, found none")
    return rows


def _row(
    where: str,
    line: int,
    stem: str,
    found: Mapping[str, str],
    unit: float,
    systems: Mapping[str, System],
    said: Said,
) -> MeasuredRow:
    """Return a row; what its cells leave open, its system says, else the options."""
    name = found.get("set") or stem
    system = systems.get(name)
    named = found.get("collective") or (system.collective if system else said.collective)
    ranks = found.get("ranks") or (system.num_ranks if system else said.ranks)
    nodes = found.get("nodes") or (system.num_nodes if system else said.nodes) or 1
    if not found.get("nodes") and ranks and found.get("ranks_per_node", "").isdecimal():
        nodes = -(-int(ranks) // max(1, int(found["ranks_per_node"])))
    if named is None or ranks is None:
        missing, option = ("collective", "--collective") if named is None else ("ranks", "--ranks")
        raise UsageError(
            f"{where}: nothing says the {missing} of {name}: no column, no option {option}, and no file of "
            "systems beside the table knows it"
        )
    collective = collective_named(str(named))
    if collective is None:
        raise UsageError(f"{where}: collective: expected one of {', '.join(KNOWN)}, got {named!r}")

    values: dict[str, float] = {}
    for what, text in (
        ("size_bytes", found["size_bytes"]),
        ("time", found["time"]),
        ("ranks", ranks),
        ("nodes", nodes),
    ):
        try:
            values[what] = float(text)
        except ValueError:
            raise UsageError(f"{where}: {what}: expected a number, got {spell(text)}") from None
        if not math.isfinite(values[what]) or (what != "time" and not values[what].is_integer()):
            kind = "finite" if what == "time" else "whole"
            raise UsageError(f"{where}: {what}: expected a {kind} number, got {spell(text)}")
    num_ranks, num_nodes = int(values["ranks"]), int(values["nodes"])
    if (
        values["time"] <= 0
        or values["size_bytes"] < 0
        or num_nodes < 1
        or num_ranks < 1
        or num_ranks % num_nodes
    ):
        raise UsageError(
            f"{where}: expected a time above 0, a size from 0 on, and ranks in equal numbers on the nodes; "
            f"got time {values['time']:g}, size {values['size_bytes']:g}, {num_ranks} ranks on {num_nodes} "
            "nodes"
        )
    return MeasuredRow(
        name,
        collective,
        int(values["size_bytes"]),
        num_nodes,
        num_ranks,
        values["time"] * unit,
        found.get("algorithm") or "native",
        line,
    )


def _bench(path: Path, text: str, content: Any, said: Said) -> list[MeasuredRow]:
    """Return the rows of a document of `testbed bench --json`."""
    if isinstance(content, dict) and content.get("transport") == "sim":
        raise UsageError(f"{path}: its times are simulated; expected those of a real transport")
    what = "what testbed bench --json prints, with transport, ranks and rows"
    document = parse_json_document(text.encode(), str(path), TimesDocument, UsageError, what)
    nodes = said.nodes or 1
    if document.ranks % nodes:
        raise UsageError(
            f"{path}: {document.ranks} ranks on {nodes} nodes; expected equally many on each: --nodes"
        )
    return [
        MeasuredRow(
            path.stem,
            row.collective,
            row.size_bytes,
            nodes,
            document.ranks,
            row.time_us * 1e-6,
            row.algorithm,
            number,
        )
        for number, row in enumerate(document.rows, start=1)
    ]


def _checked(path: Path, rows: list[MeasuredRow]) -> list[MeasuredRow]:
    """Return *rows*, each of which can be; those of 0 bytes moved nothing, and are left out.

    Raises:
        UsageError: one cannot; names its line.  None is left.
    """
    rows = [row for row in rows if row.nbytes != 0]
    if not rows:
        raise UsageError(f"{path}: expected rows out of place with a size above 0 bytes, found none")
    for row in rows:
        bounds = (
            ("time", row.seconds, "seconds above 0", 0 < row.seconds <= MAX_SECONDS),
            ("size", row.nbytes, "bytes", 0 <= row.nbytes <= MAX_BYTES),
            ("ranks", row.num_ranks, "ranks", 1 <= row.num_ranks <= MAX_RANKS),
            ("nodes", row.num_nodes, "nodes, equally full", row.num_nodes <= row.num_ranks),
        )
        for what, got, expected, holds in bounds:
            if not holds:
                raise UsageError(f"{path}: line {row.line}: {what}: expected {expected}, got {got:.6g}")
    return rows
