"""Canvas of an interactive plot: the look that all of them share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from testbed.output.figure import FAINT, INK, QUIET

WIDTH = 1050
"""Pixels, as wide as the text of a page."""


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
