"""Measured steps in a table, by which what is believed of all layouts is corrected."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from testbed.errors import UsageError
from testbed.planning.layouts.belief import Belief
from testbed.planning.layouts.layout import WORDS, Layout
from testbed.planning.layouts.search import AXES, Found, Search

Measured: TypeAlias = Mapping[Layout, float]
"""Seconds of a step, by its layout."""
_RATE = "tokens_per_second_per_gpu"


def read_measured(path: Path, search: Search) -> Measured:
    """Return the steps in the CSV at *path*; axes without a column are as a layout has them by default.

    Raises:
        UsageError: it cannot be read, has neither seconds nor a rate, or a row of other ranks.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            rows, columns = list(reader), reader.fieldnames or ()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"--measured {path}: cannot be read as CSV: {error}") from None
    if not {"seconds", _RATE} & set(columns) or not set(AXES) & set(columns):
        raise UsageError(
            f"--measured {path}: expected columns of axes ({', '.join(AXES)}), and seconds or {_RATE}; got "
            f"{', '.join(columns) or 'none'}"
        )
    return dict(_step(row, f"--measured {path}, row {number}", search) for number, row in enumerate(rows, 1))


def _step(row: Mapping[str, str], where: str, search: Search) -> tuple[Layout, float]:
    given = {axis: row[axis] for axis in AXES if row.get(axis)}
    for axis, words in WORDS.items():
        if given.get(axis, words[0]) not in words:
            raise UsageError(f"{where}: {axis} {given[axis]}: expected one of {', '.join(words)}")
    try:
        layout = Layout(**{name: own if name in WORDS else int(own) for name, own in given.items()})  # type: ignore[arg-type]
        rate = float(row.get(_RATE) or 0)
        took = float(row.get("seconds") or 0) or search.seq * search.sequences / search.ranks / rate
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"{where}: expected numbers above 0, got {dict(row)}") from None
    if layout.ranks != search.ranks or took <= 0:
        raise UsageError(
            f"{where}: expected dp × tp × pp × cp = {search.ranks} ranks and a time above 0, got "
            f"{layout.ranks} and {took:g} s"
        )
    return layout, took


def believed(belief: Belief, found: Sequence[Found], measured: Measured) -> Belief:
    """Return what is believed once those of *found* that are *measured* are known."""
    known = {own.layout: own for own in found}
    for layout, seconds in measured.items():
        if layout in known:
            belief = belief.after(known[layout], seconds)
    return belief
