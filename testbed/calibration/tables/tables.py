"""Tables of measured collectives: logs and files of nccl-tests, JSON of `testbed bench`, and CSV, as rows.

A CSV of one's own has a line of column names.  It must have a size and a time; what else it does not say,
options say, or a file of systems beside it (`testbed.calibration.tables.rows`):

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collectives.catalogue.measured_times import TimesDocument
from collectives.formats.json_document import parse_json, parse_json_document, read_bytes
from testbed.calibration.tables.nccl import (
    RCCL_COLUMNS,
    document_rows,
    is_log,
    is_nccl_document,
    log_rows,
    rccl_rows,
)
from testbed.calibration.tables.rows import MICRO, MeasuredRow, Said, Table, systems_beside
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
_UNITS = {"time_us": 1e-6, "time_ms": 1e-3, "time_s": 1.0, "seconds": 1.0, "measured_seconds": 1.0}


def read_table(path: Path, said: Said | None = None) -> list[MeasuredRow]:
    """Return the rows of the table at *path*, whatever its format; those of 0 bytes moved nothing.

    Raises:
        UsageError: it is no such table, a value is wrong, or something is not said; names file and line.
        OSError: it cannot be read.
    """
    try:
        text = read_bytes(path, UsageError).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: expected text in UTF-8: {error}") from None
    rows = [row for row in _rows(path, text, said or Said()) if row.nbytes]
    if not rows:
        raise UsageError(f"{path}: expected rows out of place with a size above 0 bytes, found none")
    return rows


def _rows(path: Path, text: str, said: Said) -> Iterator[MeasuredRow]:
    own, of_nccl = Table(path, said), Table(path, said, least_ranks=2)
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
