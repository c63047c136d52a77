"""Lines over a common axis: a line per name, whose points tell their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from testbed.output.figure import COLOURS, QUIET
from testbed.plots.interactive.canvas import canvas

_DASHES = ("solid", "dashed", "dotted", "dashdot")
_MARKERS = ("circle", "square", "triangle", "diamond")

MAX_TICKS = 10
FLOOR = "floor"
"""Name of the line that no other goes below."""

Line = Sequence[tuple[float, float]]


def lines(
    named: Mapping[str, Line],
    *,
    x: str,
    y: str,
    log_x: bool = True,
    log_y: bool = False,
    spell_x: Callable[[float], str] = "{:g}".format,
    spell_y: Callable[[float], str] = "{:.4g}".format,
    height: int = 420,
) -> Any:
    """Return a plot of lines.

    Args:
        named: points (x, y) of each line, in the order of the legend.
        x: what the horizontal axis shows.
        y: what the vertical one does.
        log_x: whether the horizontal axis is logarithmic.
        log_y: whether the vertical one is.
        spell_x: a value of x in words; ticks stand where there are points.
        spell_y: a value of y in words, shown at a point.
        height: in pixels.
    """
    from bokeh.models import HoverTool
    from bokeh.models.annotations import Legend, LegendItem

    drawn = canvas(height, x_axis_type="log" if log_x else "linear", y_axis_type="log" if log_y else "linear")
    drawn.xaxis.axis_label, drawn.yaxis.axis_label = x, y
    items, markers = [], []
    number = 0
    for name, points in named.items():
        shown = [(at, value) for at, value in points if value > 0 or not log_y]
        if not shown:
            continue
        colour, turn = QUIET, 0
        if name != FLOOR:  # has no colour of the others, so a line has its own wherever it is drawn
            colour, turn = COLOURS[number % len(COLOURS)], number // len(COLOURS) % len(_DASHES)
            number += 1
        data = {
            "x": [at for at, _ in shown],
            "y": [value for _, value in shown],
            "at": [spell_x(at) for at, _ in shown],
            "value": [spell_y(value) for _, value in shown],
            "name": [name] * len(shown),
        }
        stroke = drawn.line(data["x"], data["y"], color=colour, line_width=2, line_dash=_DASHES[turn])
        dots = drawn.scatter("x", "y", source=data, size=7, color=colour, marker=_MARKERS[turn])
        items.append(LegendItem(label=name, renderers=[stroke, dots]))
        markers.append(dots)
    places = sorted({at for points in named.values() for at, _ in points if at > 0 or not log_x})
    _tick(drawn.xaxis, _apart(places, is_log=log_x), spell_x)
    values = [value for points in named.values() for _, value in points]
    if log_y:
        _tick(drawn.yaxis, _decades([value for value in values if value > 0]), spell_y)
    else:
        _tick(drawn.yaxis, _round(values), spell_y)
    drawn.add_tools(HoverTool(renderers=markers, tooltips=[("", "@name"), (x, "@at"), (y, "@value")]))
    legend = Legend(items=items, border_line_color=None, label_text_font_size="12px", click_policy="hide")
    drawn.add_layout(legend, "right")
    return drawn


def _tick(axis: Any, places: Sequence[float], spell: Callable[[float], str]) -> None:
    """Let *axis* have ticks at *places*, in words."""
    if places:
        axis.ticker = list(places)
        axis.major_label_overrides = {place: spell(place) for place in places}


def _apart(places: Sequence[float], *, is_log: bool) -> list[float]:
    """Return those of *places*, in their order, whose names have room beside each other."""
    at = [math.log(place) if is_log else place for place in places]
    kept: list[int] = []
    for number, own in enumerate(at):
        if not kept or own - at[kept[-1]] >= (at[-1] - at[0]) / MAX_TICKS:
            kept.append(number)
    return [places[number] for number in kept]


def _round(values: Sequence[float]) -> list[float]:
    """Return round numbers that a linear axis of *values* has ticks at."""
    spread = max(values, default=0.0) - min(values, default=0.0)
    if spread <= 0:
        return sorted(set(values))
    power = 10.0 ** math.floor(math.log10(spread / 3))
    step = max(power * part for part in (1, 2, 5) if power * part <= spread / 3)
    first, last = math.floor(min(values) / step), math.ceil(max(values) / step)
    return [number * step for number in range(first, last + 1)]


def _decades(values: Sequence[float]) -> list[float]:
    """Return the powers of ten around *values*, and between them 2 and 5 where there are few."""
    if not values:
        return []
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    parts = (1, 2, 5) if last - first <= 2 else (1,)
    return [part * 10.0**power for power in range(first, last + 1) for part in parts]
