"""Scaling as small multiples: a column per network, efficiency above, exposed communication below.

Colour says the profile and the dash says the strategy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.plots.line_plot import CommonAxis, Line, Panel, every_tick, line_plot, look

if TYPE_CHECKING:
    from testbed.studies.predict import Point

MAX_TICKS = 6
HALF = 50
"""Percent above which, if all efficiencies are, the axis does not begin at 0."""


def plot_scaling(points: Sequence[Point], path: Path, *, title: str, note: str) -> None:
    """Draw *points* to *path*, in the format that its suffix names.

    Raises:
        UsageError: matplotlib is not installed, or cannot write this format.
        OSError: *path* cannot be written.
    """
    networks = list(dict.fromkeys(point.network for point in points))
    columns = [[point for point in points if point.network == network] for network in networks]
    least = min((100 * p.efficiency for p in points), default=0.0)
    bottom = max(0.0, 10.0 * (least // 10) - 10) if least > HALF else 0.0
    efficiency = [
        Panel(
            "scaling efficiency (%)",
            _lines(points, [(p, 100 * p.efficiency) for p in own]),
            top=100 + 0.04 * (100 - bottom),
            bottom=bottom,
            heading=network,
        )
        for network, own in zip(networks, columns, strict=True)
    ]

    exposed = [
        Panel(
            "exposed communication (ms per step)",
            _lines(points, [(point, 1e3 * point.exposed_seconds) for point in own if point.exposed_seconds]),
            log=True,
        )
        for own in columns
    ]
    axis = CommonAxis("ranks", every_tick(sorted({point.ranks for point in points}), str, MAX_TICKS))
    size = max(7.0, 1.6 + 3.3 * len(networks)) + 2.2, 7.0
    line_plot([efficiency, exposed], axis, path, size=size, title=title, note=note)


def _lines(points: Sequence[Point], values: Sequence[tuple[Point, float]]) -> list[Line]:
    """Return a line per profile and strategy of all *points*, through those of *values*."""
    profiles = list(dict.fromkeys(point.profile for point in points))
    strategies = list(dict.fromkeys(point.strategy for point in points))
    return [
        Line(
            [(p.ranks, value) for p, value in values if (p.profile, p.strategy) == (profile, strategy)],
            f"{profile}, {strategy}",
            look(colour, dash, marker="o", filled=dash == 0),
        )
        for colour, profile in enumerate(profiles)
        for dash, strategy in enumerate(reversed(strategies))
    ]
