"""Bars on a page, by Bokeh: timelines and shares; and the canvas and legend that all figures of a page have.

Each bar tells what it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.output.figure import FAINT, INK, QUIET
from testbed.plots.figure import Kind, Shares
from testbed.plots.timeline import Lane, Timeline, kind_of, merged

WIDTH = 1050
"""Pixels, as wide as the text of a page."""
ENTRIES = 6
"""Of a legend above the panels, beside each other."""
MOST_HEIGHT = 640
"""Pixels that a timeline is high at most; of more rows, the wheel moves through them."""
MOST_PIECES = 40_000
"""Pieces that a page holds; of more, those that follow each other closely are drawn as one, or short ones."""
_ABOVE = 0.2  # of a lane
_LANE, _BAR, _MARGIN, _LEAST = 24, 34, 110, 180  # pixels


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
    for kind, ends in figure.pieces():
        bars[kind] = {
            "y": cases,
            "left": [left for left, _ in ends],
            "right": [right for _, right in ends],
            "height": [0.7] * len(cases),
            "name": [kind.name] * len(cases),
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
