"""Figure of a calibration: what was measured and what the simulator says of it, and the residuals.

Ours to the left, native to the right.  Above, the time of each pattern over its size: marks are measured,
lines predicted.  Below, predicted over measured, less one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from testbed.calibration.live.fit import Fitted
from testbed.calibration.live.plan import Row
from testbed.output.table import seconds
from testbed.plots.figure import Axis, Level, Line, Lines, Panel, numbered
from testbed.report.over_sizes import size_axis

LEAST_RANGE = 20.0
"""Per cent that the axis of residuals shows at least, either way."""


def fit_figure(fitted: Fitted) -> Lines:
    """Return the figure of a fit."""
    columns = {
        heading: [number for number, row in enumerate(fitted.rows) if row.pattern.is_native == native]
        for heading, native in (("ours", False), ("native", True))
    }
    names = dict.fromkeys(map(_name, fitted.rows))
    looks = {name: numbered(number) for number, name in enumerate(names)}
    worst = 1.05 * max(LEAST_RANGE, 100 * max(abs(float(error)) for error in fitted.errors))

    def lines(
        chosen: Sequence[int], value: Callable[[int], float], *, named: bool, **look: Any
    ) -> list[Line]:
        points: dict[str, list[tuple[float, float]]] = {}
        for number in chosen:
            row = fitted.rows[number]
            points.setdefault(_name(row), []).append((row.pattern.nbytes, value(number)))
        return [
            Line(name if named else "", sorted(own), **{**looks[name], **look})
            for name, own in points.items()
        ]

    times = [
        Panel(
            Axis("time", log=True, spell=seconds),
            [
                *lines(chosen, lambda number: fitted.rows[number].median, named=True, dash=None),
                *lines(chosen, lambda number: float(fitted.predicted[number]), named=False, mark=None),
            ],
            heading=heading,
        )
        for heading, chosen in columns.items()
    ]
    errors = [
        Panel(
            Axis("predicted over measured, less one (%)", low=-worst, high=worst),
            lines(chosen, lambda number: 100 * float(fitted.errors[number]), named=True, dash=None),
            [Level(0.0, "", width=0.8)],
        )
        for chosen in columns.values()
    ]
    return Lines(size_axis(row.pattern.nbytes for row in fitted.rows), [times, errors])


def _name(row: Row) -> str:
    """Return the pattern in words, whoever carries it out and whatever its size."""
    pattern = row.pattern
    groups = f" × {len(pattern.groups)}" if len(pattern.groups) > 1 else ""
    return f"{pattern.collective.replace('_', '-')}, {len(pattern.groups[0])} ranks{groups}"
