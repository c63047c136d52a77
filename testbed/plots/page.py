"""Figures of pages, by Bokeh: moved, zoomed, and each piece tells what it is.

Of lines a point tells its values, and a click in the legend hides one; of a network a line tells its name,
and how full it is; bars are `testbed.plots.page_bars`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from testbed.output.figure import INK, QUIET
from testbed.plots.drawn_network import DrawnNetwork, LinkClass
from testbed.plots.figure import Axis, Line, Lines, NoFigure, Panel, Shares
from testbed.plots.page_bars import ENTRIES, add_legend, canvas, shares, timeline
from testbed.plots.picture import Figure
from testbed.plots.timeline import Timeline

DASHES = ("solid", "8 4", "2 3", "12 4 2 4")
MARKS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "plus")
"""Of `testbed.plots.figure.NUM_DASHES` and `NUM_MARKS` kinds."""
HEIGHTS = {1: 420, 2: 310}
"""Pixels of a panel, by the rows of panels."""
LEFT = 75
"""Pixels beside panels for what their axes say, so that those below each other begin at one place."""
SLANT = 20
"""Degrees of names beside points, which hide each other less so."""
MAX_LINES = 40_000
"""Up to which a page draws a network."""
_SIGNS = 160  # that a row of names has room for


def drawn(figure: Figure) -> Any:
    """Return *figure*, which is no drawing yet, as a model of Bokeh.

    Raises:
        NoFigure: a page has no room for it.
    """
    if isinstance(figure, Timeline):
        return timeline(figure)
    if isinstance(figure, Lines):
        return lines(figure)
    if isinstance(figure, Shares):
        return shares(figure)
    assert isinstance(figure, DrawnNetwork), figure
    return network(figure)


def lines(figure: Lines) -> Any:
    """Return the plot, or the grid of plots that move together, with one legend above them."""
    from bokeh.layouts import column, row

    named: dict[str, list[Any]] = {}
    grid = [_row(figure, number, named) for number in range(len(figure.rows))]
    for drawn in chain(*grid):
        drawn.x_range = grid[0][0].x_range
        drawn.xaxis.visible = drawn in grid[-1]
    if len(grid) == len(grid[0]) == 1:
        add_legend(grid[0][0], named, "right", click_policy="hide")
        return grid[0][0]
    rows = [row(*drawn, sizing_mode="stretch_width") for drawn in grid]
    return column(_legend_above(named), *rows, sizing_mode="stretch_width")


def _row(figure: Lines, number: int, named: dict[str, list[Any]]) -> list[Any]:
    """Return the plots of a row of panels; add what belongs to each name of the legend to *named*."""
    panels = figure.rows[number]
    drawn: list[Any] = []
    for panel, values in zip(panels, figure.values(number), strict=True):
        own = _canvas(figure, panel, values, stretched=len(panels) > 1 or len(figure.rows) > 1)
        for name, renderers in _draw_panel(own, panel, figure.axis).items():
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
        drawn.min_border_left = LEFT
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


def _draw_panel(drawn: Any, panel: Panel, x: Axis) -> dict[str, list[Any]]:
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
            _write_points(drawn, line)
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


def _write_points(drawn: Any, line: Line) -> None:
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
            x_offset=8 if on_left else -8, y_offset=-6, text_align="left" if on_left else "right",
            text_font_size="12px", angle=SLANT if on_left else -SLANT, angle_units="deg",
        )  # fmt: skip


def network(figure: DrawnNetwork) -> Any:
    """Return the plot.

    Raises:
        NoFigure: it has too many lines.
    """
    from bokeh.models import HoverTool

    if figure.num_lines > MAX_LINES:
        raise NoFigure(f"{figure.num_lines} lines are too many for a page; expected at most {MAX_LINES}")
    drawn = canvas(520, tools="pan,wheel_zoom,box_zoom,reset,save")
    drawn.axis.visible = False
    drawn.y_range.range_padding = 0.3  # names below and above have room on paper too
    drawn.grid.visible = False
    places, ranks = figure.places, figure.num_ranks
    for pair in places[figure.wiring.joins]:
        drawn.line(*pair.T, line_color=QUIET, line_dash="dotted")
    lines = [_draw_class(drawn, own, with_load=figure.with_load) for own in figure.classes[::-1]]
    named = {own.name: [drawn_class] for own, drawn_class in zip(figure.classes[::-1], lines, strict=True)}
    add_legend(drawn, named, "below")
    style = {"line_color": INK, "size": float(np.clip(900 / len(places), 3, 11))}
    dots: dict[str, Any] = {"x": places[:, 0], "y": places[:, 1], "name": list(figure.wiring.names)}
    of_ranks = {name: own[:ranks] for name, own in dots.items()}
    of_switches = {name: own[ranks:] for name, own in dots.items()}
    vertices = [
        drawn.scatter("x", "y", source=of_ranks, marker="circle", fill_color=INK, **style),
        drawn.scatter("x", "y", source=of_switches, marker="square", fill_color="white", **style),
    ]
    for some, offset in ((range(ranks), 15), (range(ranks, len(places)), -15)):
        _write_vertices(drawn, figure, some, offset)
    used = [("used", "@used{0.0 %}")] if figure.with_load else []
    drawn.add_tools(HoverTool(renderers=lines, tooltips=[("link", "@name"), *used]))
    drawn.add_tools(HoverTool(renderers=vertices, tooltips=[("", "@name")]))
    return drawn


def _draw_class(drawn: Any, links: LinkClass, *, with_load: bool) -> Any:
    """Draw the links of one class, coloured by how full they are, or as the legend says."""
    from bokeh.models import LinearColorMapper, NumeralTickFormatter
    from bokeh.models.annotations import Arrow, ColorBar, NormalHead
    from bokeh.palettes import Inferno256

    data = {
        "xs": [link.points[:, 0].tolist() for link in links.links],
        "ys": [link.points[:, 1].tolist() for link in links.links],
        "name": [link.name for link in links.links],
        "used": [link.used for link in links.links],
        "width": [1.0 + 5.0 * link.used if with_load else 1.5 for link in links.links],
    }
    colour: Any = links.colour
    if with_load:
        mapper = LinearColorMapper(palette=list(reversed(Inferno256[20:235])), low=0.0, high=1.0)
        colour = {"field": "used", "transform": mapper}
        percent = NumeralTickFormatter(format="0 %")
        drawn.add_layout(
            ColorBar(color_mapper=mapper, formatter=percent, title="utilisation", width=12), "right"
        )
    look = {"line_color": colour, "line_width": {"field": "width"}, "line_dash": DASHES[links.dash]}
    lines = drawn.multi_line("xs", "ys", source=data, **look)
    for link in links.links:
        if link.is_one_way:
            (x, y), (to_x, to_y) = link.points[[0, -1]].tolist()
            head = NormalHead(size=8, fill_color=links.colour, line_color=None)
            ends: Any = {"x_start": x, "y_start": y, "x_end": to_x, "y_end": to_y, "line_color": links.colour}
            drawn.add_layout(Arrow(**ends, end=head))
    return lines


def _write_vertices(drawn: Any, figure: DrawnNetwork, vertices: range, offset: int) -> None:
    """Write the names of *vertices*, so many pixels below them, in rows that have room for them."""
    places = figure.places
    names = {vertex: figure.wiring.names[vertex].removeprefix("rank ") for vertex in vertices}
    for height in np.unique(places[list(vertices), 1].round(6)) if names else ():
        row = [vertex for vertex in vertices if abs(places[vertex, 1] - height) < 1e-5]
        if sum(len(names[vertex]) + 2 for vertex in row) <= _SIGNS:
            drawn.text(
                *places[row].T, text=[names[vertex] for vertex in row], y_offset=offset,
                text_align="center", text_baseline="middle", text_font_size="11px", text_color=INK,
            )  # fmt: skip
