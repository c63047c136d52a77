"""Plans as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.output.table import percent, seconds, spell_size, table

if TYPE_CHECKING:
    from rich.table import Table

    from testbed.planning.row import Row


def rows_table(rows: Sequence[Row]) -> Table:
    """Return the table of a plan's rows."""
    columns = ["model", "network", "algorithm", "ranks", "time", "efficiency", "bottleneck"]
    return table(columns, [_cells(row) for row in rows], text_columns=3)


def _cells(row: Row) -> list[str]:
    point = row.point
    model = f"{point.model} {spell_size(point.nbytes)}" if point.nbytes else point.model
    start = [" ".join([model, *point.arguments]), point.label]
    if row.seconds is None:
        return [*start, row.problem, str(point.ranks), "–", "–", "–"]
    return [
        *start,
        row.algorithm,
        str(point.ranks),
        seconds(row.seconds),
        "–" if row.efficiency is None else percent(row.efficiency),
        row.bottleneck or "–",
    ]
