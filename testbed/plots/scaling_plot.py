"""Scaling as small multiples: a column per network, efficiency above, exposed communication below.

Colour says the profile and the dash says the strategy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.plots.line_plot import CommonAxis, Line, Panel, every_tick, line_plot, look

if TYPE_CHECKING:
    from testbed.planning.row import Row

MAX_TICKS = 6
HALF = 50
"""Percent above which, if all efficiencies are, the axis does not begin at 0."""


def plot_scaling(rows: Sequence[Row], path: Path, *, title: str, note: str) -> None:
    """Draw *rows* of steps to *path*, in the format that its suffix names.

    Raises:
        UsageError: matplotlib is not installed, or cannot write this format.
        OSError: *path* cannot be written.
    """
    networks = list(dict.fromkeys(row.point.label for row in rows))
    columns = [[row for row in rows if row.point.label == network] for network in networks]
    reached = {id(row): 100 * (row.efficiency or 0.0) for row in rows}
    least = min(reached.values(), default=0.0)
    bottom = max(0.0, 10.0 * (least // 10) - 10) if least > HALF else 0.0
    efficiency = [
        Panel(
            "scaling efficiency (%)",
            _lines(rows, [(row, reached[id(row)]) for row in own]),
            top=100 + 0.04 * (100 - bottom),
            bottom=bottom,
            heading=network,
        )
        for network, own in zip(networks, columns, strict=True)
    ]

    exposed = [
        Panel(
            "exposed communication (ms per step)",
            _lines(rows, [(row, 1e3 * row.exposed_seconds) for row in own if row.exposed_seconds]),
            log=True,
        )
        for own in columns
    ]
    axis = CommonAxis("ranks", every_tick(sorted({row.point.ranks for row in rows}), str, MAX_TICKS))
    size = max(7.0, 1.6 + 3.3 * len(networks)) + 2.2, 7.0
    line_plot([efficiency, exposed], axis, path, size=size, title=title, note=note)


def _lines(rows: Sequence[Row], values: Sequence[tuple[Row, float]]) -> list[Line]:
    """Return a line per profile and strategy of all *rows*, through those of *values*."""
    profiles = list(dict.fromkeys(row.profile for row in rows))
    strategies = list(dict.fromkeys(row.point.strategy for row in rows))
    return [
        Line(
            [
                (row.point.ranks, value)
                for row, value in values
                if (row.profile, row.point.strategy) == (profile, strategy)
            ],
            f"{profile}, {strategy}",
            look(colour, dash, marker="o", filled=dash == 0),
        )
        for colour, profile in enumerate(profiles)
        for dash, strategy in enumerate(reversed(strategies))
    ]
