"""Fit of a calibration, drawn: what was measured and what the simulator says of it, and the residuals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.calibration.live.fit import Fitted
from testbed.calibration.live.plan import Row
from testbed.output.figure import QUIET
from testbed.output.table import seconds, spell_size
from testbed.plots.line_plot import CommonAxis, Level, Line, Panel, every_tick, line_plot, line_style

Point = tuple[float, float]
MAX_TICKS = 7
LEAST_RANGE = 20.0
"""Per cent that the axis of residuals shows at least, either way."""


def plot_calibration(fitted: Fitted, path: Path, *, title: str, note: str) -> None:
    """Draw *fitted* to *path*, in the format that its suffix names: ours to the left, native to the right.

    Above, the time of each pattern over its size: marks are measured, lines predicted.  Below, predicted
    over measured, less one.

    Raises:
        UsageError: matplotlib is not installed, or cannot write this format.
        OSError: *path* cannot be written.
    """
    columns = [
        [number for number, row in enumerate(fitted.rows) if row.pattern.is_native == native]
        for native in (False, True)
    ]
    names = list(dict.fromkeys(_name(row) for row in fitted.rows))
    styles = {name: line_style(number) for number, name in enumerate(names)}
    worst = max(LEAST_RANGE, 100 * max(abs(float(error)) for error in fitted.errors))

    times = [
        _times(fitted, own, styles, heading) for own, heading in zip(columns, ("ours", "native"), strict=True)
    ]
    errors = [_errors(fitted, own, styles, worst) for own in columns]
    sizes = sorted({row.pattern.nbytes for row in fitted.rows})
    axis = CommonAxis("size of the buffer", every_tick(_apart(sizes), spell_size, MAX_TICKS))
    line_plot([times, errors], axis, path, size=(12.0, 8.4), title=title, note=note)


def _name(row: Row) -> str:
    """Return the pattern in words, whoever carries it out and whatever its size."""
    pattern = row.pattern
    groups = f" × {len(pattern.groups)}" if len(pattern.groups) > 1 else ""
    return f"{pattern.collective.replace('_', '-')}, {len(pattern.groups[0])} ranks{groups}"


def _times(fitted: Fitted, chosen: Sequence[int], styles: dict[str, Any], heading: str) -> Panel:
    measured: defaultdict[str, list[Point]] = defaultdict(list)
    predicted: defaultdict[str, list[Point]] = defaultdict(list)
    for number in chosen:
        row = fitted.rows[number]
        measured[_name(row)].append((row.pattern.nbytes, row.median))
        predicted[_name(row)].append((row.pattern.nbytes, float(fitted.predicted[number])))
    lines = [Line(sorted(measured[name]), name, {**styles[name], "linestyle": "none"}) for name in measured]
    lines += [Line(sorted(points), "", {**styles[name], "marker": ""}) for name, points in predicted.items()]
    return Panel("time", lines, log=True, spell=lambda value: seconds(value), heading=heading)


def _errors(fitted: Fitted, chosen: Sequence[int], styles: dict[str, Any], worst: float) -> Panel:
    points: defaultdict[str, list[Point]] = defaultdict(list)
    for number in chosen:
        row = fitted.rows[number]
        points[_name(row)].append((row.pattern.nbytes, 100 * float(fitted.errors[number])))
    lines = [Line(sorted(own), name, {**styles[name], "linestyle": "none"}) for name, own in points.items()]
    level = Level(0.0, "", {"color": QUIET, "linewidth": 0.8})
    return Panel(
        "predicted over measured, less one, %", lines, (level,), top=1.05 * worst, bottom=-1.05 * worst
    )


def _apart(sizes: Sequence[int]) -> list[int]:
    """Return *sizes* of which each is well above the one before."""
    kept: list[int] = []
    for size in sizes:
        if not kept or size > 1.5 * kept[-1]:
            kept.append(size)
    return kept
