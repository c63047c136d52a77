"""Designs as points of two figures, and the front of those that no other one beats in both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.output.figure import COLOURS, FAINT, INK, QUIET
from testbed.plots.interactive.canvas import canvas

MAX_NAMES = 12
"""Designs of the front up to which their names are written."""


_DIGITS = "return tick.toLocaleString('en', {maximumSignificantDigits: 4})"


@dataclass(frozen=True)
class Design:
    """A design: its name, its two figures, both better where they are smaller, and whether none beats it."""

    name: str
    x: float
    y: float
    on_front: bool


def front_plot(
    designs: Sequence[Design],
    *,
    x: str,
    y: str,
    spell_x: Callable[[float], str],
    spell_y: Callable[[float], str],
) -> Any:
    """Return a plot of *designs*, those of the front coloured and joined; a point tells its figures.

    Args:
        designs: in any order.
        x: what the horizontal axis shows.
        y: what the vertical one does.
        spell_x: a value of x in words.
        spell_y: a value of y in words.
    """
    from bokeh.models import CustomJSTickFormatter, HoverTool

    drawn = canvas(420)
    front = sorted((own for own in designs if own.on_front), key=lambda own: (own.x, own.y))
    rest = [own for own in designs if not own.on_front]
    drawn.line([own.x for own in front], [own.y for own in front], color=COLOURS[0], line_width=2)
    quiet, coloured = (_columns(own, spell_x, spell_y) for own in (rest, front))
    dots = [
        drawn.scatter("x", "y", source=quiet, size=7, color=FAINT, line_color=QUIET),
        drawn.scatter("x", "y", source=coloured, size=9, color=COLOURS[0]),
    ]
    if len(front) <= MAX_NAMES:
        _write_names(drawn, front, designs)
    drawn.add_tools(HoverTool(renderers=dots, tooltips=[("", "@name"), (x, "@at"), (y, "@value")]))
    drawn.xaxis.axis_label, drawn.yaxis.axis_label = x, y
    for axis in drawn.axis:
        axis.formatter = CustomJSTickFormatter(code=_DIGITS)
    drawn.x_range.range_padding, drawn.y_range.range_padding = 0.15, 0.4
    return drawn


def _write_names(drawn: Any, front: Sequence[Design], designs: Sequence[Design]) -> None:
    """Write the names of the *front* at its points, towards the middle of the plot."""
    middle = (min(own.x for own in designs) + max(own.x for own in designs)) / 2
    for left in (True, False):
        here = [own for own in front if (own.x <= middle) == left]
        drawn.text(
            [own.x for own in here], [own.y for own in here], text=[own.name for own in here],
            x_offset=8 if left else -8, y_offset=-6 if left else 16, text_align="left" if left else "right",
            text_font_size="12px", text_color=INK,
        )  # fmt: skip


def _columns(
    designs: Sequence[Design], spell_x: Callable[[float], str], spell_y: Callable[[float], str]
) -> dict[str, list[Any]]:
    return {
        "x": [own.x for own in designs],
        "y": [own.y for own in designs],
        "name": [own.name for own in designs],
        "at": [spell_x(own.x) for own in designs],
        "value": [spell_y(own.y) for own in designs],
    }
