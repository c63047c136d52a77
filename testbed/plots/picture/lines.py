"""Lines in panels, as a picture, with one legend beside them."""

from __future__ import annotations

from typing import Any

from testbed.output.figure import DASHES, INK, QUIET, dress, new_figure
from testbed.plots.figure import Axis, Line, Lines, Panel

MARKS = "os^DvP"
"""Of `testbed.plots.figure.NUM_MARKS` kinds."""


def draw_lines(lines: Lines) -> Any:
    """Return the figure of matplotlib."""
    columns, rows = len(lines.rows[0]), len(lines.rows)
    width, height = 9.5 if columns == 1 else 5.0 + 3.3 * columns, 3.6 + 1.8 * rows
    figure = new_figure(width, height, wspace=0.05, hspace=0.04)
    places = figure.subplots(rows, columns, squeeze=False)
    for number, row in enumerate(lines.rows):
        every = lines.values(number)
        for panel, values, place in zip(row, every, places[number], strict=True):
            _draw(panel, place)
            _set_axis(place, "y", panel.axis, values, panel.axis.ticks(values))
            _set_axis(place, "x", lines.axis, lines.places(), lines.ticks())
            if lines.marked is not None:
                place.axvline(lines.marked, color=QUIET, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
            place.tick_params(labelbottom=number == rows - 1)
            if panel is row[0] or panel.axis.quantity != row[0].axis.quantity:
                place.set_ylabel(panel.axis.quantity, color=INK)
            else:
                place.tick_params(labelleft=False)
            dress(place)
    for place in places[-1]:
        place.set_xlabel(lines.axis.quantity, color=INK)
    _legend_beside(places)
    return figure


def _draw(panel: Panel, place: Any) -> None:
    for line in panel.lines:
        if line.points:
            place.plot(*zip(*line.points, strict=True), label=line.name or None, **_style(line))
        for (x, y), name in zip(line.points, line.names, strict=False) if line.written else ():
            place.annotate(name, (x, y), (5, 4), textcoords="offset points", fontsize=8, color=INK)
    for level in panel.levels:
        style = {"color": level.colour, "linestyle": DASHES[level.dash], "linewidth": level.width}
        place.axhline(level.value, label=level.name or None, zorder=0, **style)
    if panel.heading:
        place.set_title(panel.heading, loc="left", fontsize=10, color=INK, fontweight="bold")


def _style(line: Line) -> dict[str, Any]:
    dash = "none" if line.dash is None else DASHES[line.dash]
    shows_through = {"gapcolor": "white"} if line.dash else {}  # upon a solid line of one colour
    return {
        **shows_through,
        "color": line.colour,
        "linestyle": dash,
        "linewidth": line.width,
        "marker": "" if line.mark is None else MARKS[line.mark],
        "markersize": line.size,
        "markerfacecolor": line.colour if line.filled else "white",
    }


def _set_axis(place: Any, which: str, axis: Axis, values: list[float], ticks: dict[float, str]) -> None:
    """Give the axis *which*, ``x`` or ``y``, its range and *ticks*."""
    getattr(place, f"set_{which}scale")("log" if axis.log else "linear")
    getattr(place, f"set_{which}ticks")(list(ticks), list(ticks.values()))
    getattr(place, f"set_{which}lim")(*axis.range(values))


def _legend_beside(drawn: Any) -> None:
    """Set one legend to the right of the first row, with each name of all panels once."""
    handle_of: dict[str, Any] = {}
    for place in drawn.flat:
        for handle, label in zip(*place.get_legend_handles_labels(), strict=True):
            handle_of.setdefault(label, handle)
    if len(handle_of) > 1 or len(drawn.flat) > 1:
        drawn[0][-1].legend(
            handle_of.values(), handle_of.keys(), loc="upper left", bbox_to_anchor=(1.0, 1.02),
            handlelength=3.4, frameon=False, labelcolor=INK, fontsize=9,
        )  # fmt: skip
