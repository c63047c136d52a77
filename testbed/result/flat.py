"""Rows without tables in them: CSV that a spreadsheet takes for nothing else than it is, and for pandas."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from testbed.errors import UsageError, how_to_install

if TYPE_CHECKING:
    from pandas import DataFrame

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""With these begins a text of which a spreadsheet makes a formula; numbers are none."""


def csv_text(rows: Iterable[Mapping[str, Any]], names: Iterable[str] = ()) -> str:
    """Return *rows* as CSV: a line for each, with a column for each field; without rows the head of *names*.

    Text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    lines = [{name: _cell(value) for name, value in flat(row).items()} for row in rows]
    columns = list(dict.fromkeys(name for line in lines for name in line) or names)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writerow({name: _no_formula(name) for name in columns})
    writer.writerows(lines)
    return text.getvalue()


def data_frame(rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Return *rows* as a DataFrame: a column for each field.

    Raises:
        UsageError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise UsageError(how_to_install("a table needs pandas", "plan")) from None

    return pandas.DataFrame([flat(row) for row in rows])


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return *row* without tables in it: their entries stand beside the others."""
    fields: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            fields |= {own if own not in row else f"{name}_{own}": one for own, one in value.items()}
        else:
            fields[name] = value
    return fields


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
