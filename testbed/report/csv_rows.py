"""Rows of a plan as CSV: what a program reads, and a spreadsheet takes for nothing else than it is."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.planning.row import Row

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""With these begins a text of which a spreadsheet makes a formula; numbers are none."""


def csv_text(rows: Iterable[Row]) -> str:
    """Return *rows* as CSV: a line for each, with a column for each input and figure.

    Text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    flat = [_flat(row.as_json()) for row in rows]
    columns = list(dict.fromkeys(name for row in flat for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writerow({name: _no_formula(name) for name in columns})
    writer.writerows(flat)
    return text.getvalue()


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return *row* without tables in it: their entries stand beside the others; lists are JSON."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= {own if own not in row else f"{name}_{own}": _cell(one) for own, one in value.items()}
        else:
            found[name] = _cell(value)
    return found


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, list | tuple | dict) else _no_formula(value)


def _no_formula(value: Any) -> Any:
    """Return *value*; a text of which a spreadsheet would make a formula, after an apostrophe."""
    if not isinstance(value, str):
        return value
    one_line = value.replace("\r", " ")  # which ends a line for whoever reads it
    return f"'{one_line}" if value.startswith(_FORMULA) else one_line
