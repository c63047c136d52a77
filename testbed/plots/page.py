"""Figures of pages, by Bokeh: moved, zoomed, and each piece tells what it is.

Of lines a point tells its values, and a click in the legend hides one; of a timeline and of shares each bar
tells what it is; of a network a line tells its name, and how full it is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from testbed.output.figure import FAINT, INK, QUIET
from testbed.plots.drawn_network import DrawnNetwork, LinkClass
from testbed.plots.figure import Axis, Line, Lines, NoFigure, Panel, Shares
from testbed.plots.picture import Figure
from testbed.plots.timeline import Kind, Lane, Timeline, kind_of, merged

WIDTH = 1050
"""Pixels, as wide as the text of a page."""
DASHES = ("solid", "8 4", "2 3", "12 4 2 4")
MARKS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "plus")
"""Of `testbed.plots.figure.NUM_DASHES` and `NUM_MARKS` kinds."""
HEIGHTS = {1: 420, 2: 310}
"""Pixels of a panel, by the rows of panels."""
LEFT = 75
"""Pixels beside panels for what their axes say, so that those below each other begin at one place."""
SLANT = 20
"""Degrees of names beside points, which hide each other less so."""
ENTRIES = 6
"""Of a legend above the panels, beside each other."""
MOST_HEIGHT = 640
"""Pixels that a timeline is high at most; of more rows, the wheel moves through them."""
MOST_PIECES = 40_000
"""Pieces that a page holds; of more, those that follow each other closely are drawn as one, or short ones."""
_ABOVE = 0.2  # of a lane
MAX_LINES = 40_000
"""Up to which a page draws a network."""
_SIGNS = 160  # that a row of names has room for

_LANE, _BAR, _MARGIN, _LEAST = 24, 34, 110, 180  # pixels


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


def canvas(height: int, *, tools: str = "pan,xwheel_zoom,box_zoom,reset,save", **options: Any) -> Any:
    """Return an empty figure of Bokeh, *height* pixels high, that grows and shrinks with the page."""
    from bokeh.plotting import figure

    drawn = figure(
        width=WIDTH,
        height=height,
        sizing_mode="scale_width",
        tools=tools,
        active_drag="pan" if tools else None,
        active_scroll=None,
        output_backend="canvas",
        **options,
    )
    drawn.toolbar.logo = None
    drawn.toolbar.autohide = True  # shown under the mouse, so never on paper
    drawn.outline_line_color = None
    drawn.background_fill_color = "white"
    for axis in drawn.axis:
        axis.axis_line_color = FAINT
        axis.major_tick_line_color = None
        axis.minor_tick_line_color = None
        axis.major_label_text_color = INK
        axis.axis_label_text_color = QUIET
        axis.axis_label_text_font_style = "normal"
        axis.major_label_text_font_size = axis.axis_label_text_font_size = "12px"
    drawn.grid.grid_line_color = FAINT
    drawn.grid.grid_line_alpha = 0.6
    return drawn


def add_legend(drawn: Any, named: Mapping[str, Sequence[Any]], where: str, **options: Any) -> None:
    """Give *drawn* a legend of what is *named*: the renderers of each entry."""
    from bokeh.models.annotations import Legend, LegendItem

    items = [LegendItem(label=name, renderers=list(own)) for name, own in named.items() if name]
    if items:
        options |= {
            "items": items,
            "border_line_color": None,
            "location": "center_left",
            "label_text_font_size": "12px",
        }
        drawn.add_layout(Legend(**options), where)


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


def timeline(figure: Timeline) -> Any:
    """Return the plot, moved with the mouse and zoomed with its tools.

    Rows that do not fit are moved through with the wheel: a browser draws no picture of a thousand rows.
    """
    from bokeh.models import Range1d, WheelPanTool

    lanes, (scale, unit), until = list(figure.lanes()), figure.unit(), figure.until
    gap = _gap(lanes, until)
    bars: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for lane in lanes:
        for start, end, name in merged(lane.pieces, lane.track, gap) if gap else lane.pieces:
            own = bars[kind_of(lane.track, name)]
            own["left"].append(start * scale)
            own["right"].append(end * scale)
            own["y"].append(lane.top + lane.height / 2)
            own["height"].append(0.88 * lane.height)
            own["name"].append(name)
            own["lane"].append(f"{lane.row.label}, {lane.track}")
            own["took"].append(f"{(end - start) * scale:.4g} {unit}")
    bottom = lanes[-1].top + lanes[-1].height if lanes else 1.0
    shown = min(bottom, (MOST_HEIGHT - _MARGIN) / _LANE)
    drawn = canvas(
        max(_LEAST, int(shown * _LANE) + _MARGIN),
        x_range=(0, until * scale),
        y_range=Range1d(start=shown, end=-_ABOVE, bounds=(-_ABOVE, bottom)),
    )
    if shown < bottom:
        wheel = WheelPanTool(dimension="height")
        drawn.add_tools(wheel)
        drawn.toolbar.active_scroll = wheel
    _draw_bars(
        drawn, {kind: bars[name] for name, kind in figure.kinds().items()}, [("", "@lane"), ("took", "@took")]
    )
    joined = f"; pieces closer than {gap * scale:.2g} {unit} are drawn as one" if gap else ""
    drawn.xaxis.axis_label = f"{figure.since} ({unit}){joined}"
    names = {lane.top + lane.height / 2: lane.label for lane in lanes}
    drawn.yaxis.ticker = list(names)
    drawn.yaxis.major_label_overrides = names
    return drawn


def shares(figure: Shares) -> Any:
    """Return the plot."""
    height = max(_LEAST, _BAR * len(figure.cases) + _MARGIN)
    cases = list(figure.cases)
    drawn = canvas(height, y_range=cases[::-1], x_range=(0, figure.longest() * 1.02))
    bars: dict[Kind, dict[str, list[Any]]] = {}
    for name, colour, is_hatched, ends in figure.pieces():
        bars[Kind(name, colour, is_hatched)] = {
            "y": cases,
            "left": [left for left, _ in ends],
            "right": [right for _, right in ends],
            "height": [0.7] * len(cases),
            "name": [name] * len(cases),
            "share": [figure.axis.spell(right - left) for left, right in ends],
        }
    _draw_bars(drawn, bars, [("", "@y"), ("share", "@share")])
    if figure.within:
        low, high = zip(*figure.within, strict=True)
        drawn.segment(x0=list(low), x1=list(high), y0=cases, y1=cases, line_color=INK, line_width=1.5)
    drawn.xaxis.axis_label = figure.axis.quantity
    return drawn


def _draw_bars(drawn: Any, bars: Mapping[Kind, Mapping[str, list[Any]]], told: list[tuple[str, str]]) -> None:
    """Draw the *bars* of each kind, with a legend above and what is *told* of each beside its name."""
    from bokeh.models import HoverTool

    named: dict[str, list[Any]] = {}
    renderers = []
    for kind, data in bars.items():
        look: dict[str, Any] = {"fill_color": kind.colour, "line_color": None}
        if kind.hatched:
            look |= {"fill_color": "white", "hatch_pattern": "/", "hatch_color": kind.colour}
        where = {"y": "y", "left": "left", "right": "right", "height": "height"}
        renderers.append(drawn.hbar(**where, source=dict(data), **look))
        named[kind.name] = renderers[-1:]
    drawn.sizing_mode = "stretch_width"
    drawn.add_tools(HoverTool(renderers=renderers, tooltips=[("", "@name"), *told]))
    add_legend(drawn, named, "above", ncols=min(len(named), ENTRIES))
    drawn.yaxis.major_label_text_color = INK
    drawn.ygrid.grid_line_color = None


def _gap(lanes: Sequence[Lane], until: int) -> int:
    """Return how close pieces follow each other that are drawn as one."""
    gap, held = 0, sum(len(lane.pieces) for lane in lanes)
    while gap < until and held > MOST_PIECES:
        gap = max(2 * gap, until // 10_000, 1)
        held = sum(len(merged(lane.pieces, lane.track, gap)) for lane in lanes)
    return gap


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
