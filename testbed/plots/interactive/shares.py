"""Shares of a whole: a bar for each case, in pieces that tell what they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from testbed.output.figure import COLOURS, INK
from testbed.plots.interactive.canvas import canvas

_BAR, _MARGIN, _LEAST = 34, 90, 180  # pixels


def shares(
    cases: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    *,
    x: str,
    spell: Callable[[float], str] = "{:.3g}".format,
) -> Any:
    """Return a plot of stacked bars, the first case on top.

    Args:
        cases: names of the bars, each once.
        parts: of each name in the legend the share that it has of each case; less than 0 is not drawn.
        x: what the axis shows.
        spell: a share in words, shown at a piece.
    """
    from bokeh.models import HoverTool
    from bokeh.models.annotations import Legend, LegendItem

    height = max(_LEAST, _BAR * len(cases) + _MARGIN)
    drawn = canvas(height, y_range=list(reversed(cases)), x_range=(0, _most(parts) * 1.02))
    drawn.sizing_mode = "stretch_width"
    left = [0.0] * len(cases)
    items, bars = [], []
    for number, (name, own) in enumerate(parts.items()):
        right = [start + max(share, 0.0) for start, share in zip(left, own, strict=True)]
        data = {
            "y": list(cases),
            "left": left,
            "right": right,
            "name": [name] * len(cases),
            "share": [spell(share) for share in own],
        }
        colour = COLOURS[number % len(COLOURS)]
        hatch = None if number < len(COLOURS) else "right_diagonal_line"
        bar = drawn.hbar(
            y="y", left="left", right="right", height=0.7, source=data, fill_color=colour,
            line_color="white", hatch_pattern=hatch, hatch_color="white",
        )  # fmt: skip
        items.append(LegendItem(label=name, renderers=[bar]))
        bars.append(bar)
        left = right
    drawn.add_tools(HoverTool(renderers=bars, tooltips=[("", "@y"), ("@name", "@share")]))
    drawn.add_layout(Legend(items=items, border_line_color=None, label_text_font_size="12px"), "right")
    drawn.xaxis.axis_label = x
    drawn.yaxis.major_label_text_color = INK
    drawn.ygrid.grid_line_color = None
    return drawn


def _most(parts: Mapping[str, Sequence[float]]) -> float:
    """Return the length of the longest bar; 1 where all are empty."""
    sums = [sum(max(share, 0.0) for share in column) for column in zip(*parts.values(), strict=True)]
    return max(sums, default=0.0) or 1.0
