"""Lines over a common axis: a line per name, whose points tell their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from testbed.output.figure import COLOURS, QUIET
from testbed.pages.plots.canvas import canvas

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
    places = sorted({at for points in named.values() for at, _ in points})
    _tick(drawn.xaxis, places[:: -(-len(places) // MAX_TICKS) or 1], spell_x)
    if log_y:
        values = [value for points in named.values() for _, value in points if value > 0]
        _tick(drawn.yaxis, _decades(values), spell_y)
    drawn.add_tools(HoverTool(renderers=markers, tooltips=[("", "@name"), (x, "@at"), (y, "@value")]))
    legend = Legend(items=items, border_line_color=None, label_text_font_size="12px", click_policy="hide")
    drawn.add_layout(legend, "right")
    return drawn


def _tick(axis: Any, places: Sequence[float], spell: Callable[[float], str]) -> None:
    """Let *axis* have ticks at *places*, in words."""
    if places:
        axis.ticker = list(places)
        axis.major_label_overrides = {place: spell(place) for place in places}


def _decades(values: Sequence[float]) -> list[float]:
    """Return the powers of ten among *values*."""
    if not values:
        return []
    return [
        10.0**power
        for power in range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
    ]
