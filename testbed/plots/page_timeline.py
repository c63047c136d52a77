"""Timelines on a page, by Bokeh: moved and zoomed with the mouse, and each piece tells what it is.

Rows that do not fit are moved through with the wheel: a browser draws no picture of a thousand rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.output.figure import FAINT, INK, QUIET
from testbed.plots.figure import Kind
from testbed.plots.timeline import Lane, Timeline, kind_of, merged

WIDTH = 1050
"""Pixels, as wide as the text of a page."""
ENTRIES = 6
"""Of the legend, beside each other."""
MOST_HEIGHT = 640
"""Pixels that it is high at most."""
MOST_PIECES = 40_000
"""Pieces that a page holds; of more, those that follow each other closely are drawn as one, or short ones."""
_ABOVE = 0.2  # of a lane
_LANE, _MARGIN, _LEAST = 24, 110, 180  # pixels


def timeline(figure: Timeline) -> Any:
    """Return *figure* as a model of Bokeh."""
    from bokeh.models import WheelPanTool

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
    drawn = _canvas(until * scale, shown, bottom)
    if shown < bottom:
        wheel = WheelPanTool(dimension="height")
        drawn.add_tools(wheel)
        drawn.toolbar.active_scroll = wheel
    _draw_bars(drawn, {kind: bars[name] for name, kind in figure.kinds().items()})
    joined = f"; pieces closer than {gap * scale:.2g} {unit} are drawn as one" if gap else ""
    drawn.xaxis.axis_label = f"{figure.since} ({unit}){joined}"
    names = {lane.top + lane.height / 2: lane.label for lane in lanes}
    drawn.yaxis.ticker = list(names)
    drawn.yaxis.major_label_overrides = names
    return drawn


def _canvas(until: float, shown: float, bottom: float) -> Any:
    """Return an empty figure of Bokeh that grows and shrinks with the page.

    Args:
        until: where its time ends.
        shown: heights of lanes that it shows at once.
        bottom: of the last lane, in the same unit.
    """
    from bokeh.models import Range1d
    from bokeh.plotting import figure

    drawn = figure(
        width=WIDTH,
        height=max(_LEAST, int(shown * _LANE) + _MARGIN),
        sizing_mode="stretch_width",
        tools="pan,xwheel_zoom,box_zoom,reset,save",
        active_drag="pan",
        active_scroll=None,
        output_backend="canvas",
        x_range=Range1d(start=0, end=until),
        y_range=Range1d(start=shown, end=-_ABOVE, bounds=(-_ABOVE, bottom)),
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
    drawn.xgrid.grid_line_color = FAINT
    drawn.xgrid.grid_line_alpha = 0.6
    drawn.ygrid.grid_line_color = None
    return drawn


def _draw_bars(drawn: Any, bars: Mapping[Kind, Mapping[str, list[Any]]]) -> None:
    """Draw the *bars* of each kind, with a legend above."""
    from bokeh.models import HoverTool
    from bokeh.models.annotations import Legend, LegendItem

    renderers = []
    for kind, data in bars.items():
        look: dict[str, Any] = {"fill_color": kind.colour, "line_color": None}
        if kind.hatched:
            look |= {"fill_color": "white", "hatch_pattern": "/", "hatch_color": kind.colour}
        where = {"y": "y", "left": "left", "right": "right", "height": "height"}
        renderers.append(drawn.hbar(**where, source=dict(data), **look))
    told = [("", "@name"), ("", "@lane"), ("took", "@took")]
    drawn.add_tools(HoverTool(renderers=renderers, tooltips=told))
    items = [
        LegendItem(label=kind.name, renderers=[own])
        for kind, own in zip(bars, renderers, strict=True)
        if kind.name
    ]
    if items:
        look = {"border_line_color": None, "location": "center_left", "label_text_font_size": "12px"}
        drawn.add_layout(Legend(items=items, ncols=min(len(bars), ENTRIES), **look), "above")


def _gap(lanes: Sequence[Lane], until: int) -> int:
    """Return how close pieces follow each other that are drawn as one."""
    gap, held = 0, sum(len(lane.pieces) for lane in lanes)
    while gap < until and held > MOST_PIECES:
        gap = max(2 * gap, until // 10_000, 1)
        held = sum(len(merged(lane.pieces, lane.track, gap)) for lane in lanes)
    return gap
