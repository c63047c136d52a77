"""Lines in panels, on a page: a point tells its values, a click in the legend hides a line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from testbed.output.figure import QUIET
from testbed.plots.figure import Axis, Line, Lines, Panel
from testbed.plots.page.canvas import add_legend, canvas

DASHES = ("solid", "8 4", "2 3", "12 4 2 4")
MARKS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "plus")
"""Of `testbed.plots.figure.NUM_DASHES` and `NUM_MARKS` kinds."""
HEIGHTS = {1: 420, 2: 310}
"""Pixels of a panel, by the rows of panels."""
ENTRIES = 5
"""Of a legend above the panels, beside each other."""


def lines(figure: Lines) -> Any:
    """Return the plot, or the grid of plots that move together, with one legend above them."""
    from bokeh.layouts import column, row

    named: dict[str, list[Any]] = {}
    grid = [_row(figure, number, named) for number in range(len(figure.rows))]
    for drawn in chain(*grid):
        drawn.x_range = grid[0][0].x_range
        drawn.xaxis.visible = drawn in grid[-1]
    if len(grid[0]) == 1:
        add_legend(grid[0][0], named, "right", click_policy="hide")
    if len(grid) == len(grid[0]) == 1:
        return grid[0][0]
    rows = [row(*drawn, sizing_mode="stretch_width") for drawn in grid]
    legend = [_legend_above(named)] if len(grid[0]) > 1 else []
    return column(*legend, *rows, sizing_mode="stretch_width")


def _row(figure: Lines, number: int, named: dict[str, list[Any]]) -> list[Any]:
    """Return the plots of a row of panels; add what belongs to each name of the legend to *named*."""
    panels = figure.rows[number]
    drawn: list[Any] = []
    for panel, values in zip(panels, figure.values(number), strict=True):
        own = _canvas(figure, panel, values, stretched=len(panels) > 1 or len(figure.rows) > 1)
        for name, renderers in _draw(own, panel, figure.axis).items():
            named.setdefault(name, []).extend(renderers)
        if drawn and panel.axis.quantity == panels[0].axis.quantity:
            own.y_range = drawn[0].y_range
        else:
            own.yaxis.axis_label = panel.axis.quantity
        drawn.append(own)
    return drawn


def _canvas(figure: Lines, panel: Panel, values: list[float], *, stretched: bool) -> Any:
    """Return an empty plot for *panel*, with its axes."""
    from bokeh.models import Range1d

    (left, right), (low, high) = figure.axis.range(figure.places()), panel.axis.range(values)
    options: dict[str, Any] = {
        "x_axis_type": "log" if figure.axis.log else "linear",
        "y_axis_type": "log" if panel.axis.log else "linear",
        "x_range": Range1d(start=left, end=right),
        "y_range": Range1d(start=low, end=high),
    }
    drawn = canvas(HEIGHTS.get(len(figure.rows), 260), **options)
    drawn.xaxis.axis_label = figure.axis.quantity
    for axis, ticks in ((drawn.xaxis, figure.ticks()), (drawn.yaxis, panel.axis.ticks(values))):
        axis.ticker = list(ticks)
        axis.major_label_overrides = ticks
    if stretched:
        drawn.sizing_mode = "stretch_width"
    if panel.heading:
        drawn.title.text = panel.heading
    if figure.marked is not None:
        drawn.vspan(x=[figure.marked], line_color=QUIET, line_dash="2 2")
    return drawn


def _legend_above(named: Mapping[str, Sequence[Any]]) -> Any:
    """Return a plot of nothing but the legend of all panels, in which a click hides what has that name."""
    from bokeh.models import ColumnDataSource

    drawn = canvas(30 + 26 * (-(-len(named) // ENTRIES)), tools="")
    drawn.sizing_mode = "stretch_width"
    drawn.axis.visible = drawn.grid.visible = False
    shown: dict[str, list[Any]] = {}
    for name, renderers in named.items():
        looks = {renderer.glyph.__class__: renderer.glyph for renderer in renderers}
        shown[name] = [
            drawn.add_glyph(ColumnDataSource({"x": [math.nan], "y": [math.nan]}), glyph.clone())
            for glyph in looks.values()
        ]
        for renderer in renderers:
            shown[name][0].js_link("visible", renderer, "visible")
    add_legend(drawn, shown, "above", click_policy="hide", ncols=ENTRIES)
    return drawn


def _draw(drawn: Any, panel: Panel, x: Axis) -> dict[str, list[Any]]:
    """Draw the lines of *panel*; return what belongs to each name of the legend."""
    from bokeh.models import HoverTool

    named: dict[str, list[Any]] = {}
    told = []
    for line in (line for line in panel.lines if line.points):
        own = named.setdefault(line.name, [])
        source = _columns(line, x, panel.axis)
        if line.dash is not None:
            own.append(
                drawn.line(
                    source["x"], source["y"], color=line.colour, line_width=1.2 * line.width,
                    line_dash=DASHES[line.dash],
                )
            )  # fmt: skip
        if line.mark is not None:
            fill = line.colour if line.filled else "white"
            look = {"size": 1.6 * line.size, "line_color": line.colour, "fill_color": fill}
            own.append(drawn.scatter("x", "y", source=source, marker=MARKS[line.mark], **look))
        told += own[-1:]
        if line.written:
            _write_names(drawn, line)
    for level in panel.levels:
        look = {"line_color": level.colour, "line_width": 1.2 * level.width}
        own = named.setdefault(level.name, [])
        own.append(drawn.hspan(y=[level.value], line_dash=DASHES[level.dash], **look))
    tooltips = [("", "@name"), (x.quantity, "@at"), (panel.axis.quantity, "@value")]
    drawn.add_tools(HoverTool(renderers=told, tooltips=tooltips))
    return named


def _columns(line: Line, x: Axis, y: Axis) -> dict[str, list[Any]]:
    return {
        "x": [at for at, _ in line.points],
        "y": [value for _, value in line.points],
        "at": [x.spell(at) for at, _ in line.points],
        "value": [y.spell(value) for _, value in line.points],
        "name": list(line.names) or [line.name] * len(line.points),
    }


def _write_names(drawn: Any, line: Line) -> None:
    """Write the names of points beside them, towards the middle of the plot."""
    middle = (drawn.x_range.start + drawn.x_range.end) / 2
    for on_left in (True, False):
        here = [
            (*at, name)
            for at, name in zip(line.points, line.names, strict=True)
            if (at[0] <= middle) == on_left
        ]
        drawn.text(
            [x for x, _, _ in here], [y for _, y, _ in here], text=[name for *_, name in here],
            x_offset=8 if on_left else -8, y_offset=-6 if on_left else 16,
            text_align="left" if on_left else "right", text_font_size="12px",
        )  # fmt: skip
