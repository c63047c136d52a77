"""Lines over a common axis, in one panel or several, with one legend beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.output.figure import COLOURS, DASHES, INK, QUIET, annotate, check_plot, dress, new_figure, save

MARKERS = "os^DvP"
CHARACTERS_PER_INCH = 16
"""Of the note below the panels."""


@dataclass(frozen=True)
class Line:
    """One line of a panel; a line without points is left out.

    Attributes:
        points: x and y of each.
        label: in the legend, where the same label stands once; empty: not there.
        style: arguments of matplotlib's ``plot`` (see `line_style`).
    """

    points: Sequence[tuple[float, float]]
    label: str
    style: Mapping[str, Any]


@dataclass(frozen=True)
class Level:
    """A horizontal line through a panel, at *value*; otherwise as `Line`."""

    value: float
    label: str
    style: Mapping[str, Any]


@dataclass(frozen=True)
class Panel:
    """Lines with a vertical axis.

    Attributes:
        quantity: what the vertical axis shows, and its unit.
        lines: in the order of the legend.
        levels: values without an x.
        log: whether the vertical axis is logarithmic; else it begins at *bottom*.
        top: where the vertical axis ends; None: where the lines do.
        bottom: where a vertical axis begins that is not logarithmic.
        spell: how a value of the vertical axis is written.
        heading: above the panel.
    """

    quantity: str
    lines: Sequence[Line]
    levels: Sequence[Level] = ()
    log: bool = False
    top: float | None = None
    bottom: float = 0.0
    spell: Callable[[float], str] = "{:g}".format
    heading: str = ""


@dataclass(frozen=True)
class CommonAxis:
    """The logarithmic axis that all panels share.

    Attributes:
        quantity: what it shows, and its unit.
        ticks: the text at each value; empty: powers of ten.
        marked: a value that a vertical line marks.
    """

    quantity: str
    ticks: Mapping[float, str] = field(default_factory=dict)
    marked: float | None = None


def line_plot(
    panels: Sequence[Sequence[Panel]],
    axis: CommonAxis,
    path: Path,
    *,
    size: tuple[float, float],
    title: str,
    note: str,
) -> None:
    """Draw rows of *panels* to *path*, in the format that its suffix names.

    Panels of a row share the vertical axis if they show the same quantity.

    Args:
        panels: as many in each row.
        axis: below the last row.
        path: of the file.
        size: width and height in inches, with the legend.
        title: above the panels.
        note: below them, in small print.

    Raises:
        UsageError: matplotlib is not installed, or cannot write this format.
        OSError: *path* cannot be written.
    """
    check_plot(path)
    figure = new_figure(*size, wspace=0.05, hspace=0.04)
    shared = all(len({panel.quantity for panel in row}) == 1 for row in panels)
    drawn = figure.subplots(
        len(panels), len(panels[0]), sharex=True, sharey="row" if shared else False, squeeze=False
    )

    for row, places in zip(panels, drawn, strict=True):
        for panel, place in zip(row, places, strict=True):
            _draw(panel, axis, place)
            if not shared or panel is row[0]:
                place.set_ylabel(panel.quantity, color=INK)
    for place in drawn[-1]:
        place.set_xlabel(axis.quantity, color=INK)

    _legend_beside(drawn)
    annotate(figure, title, note, round(CHARACTERS_PER_INCH * size[0]))
    save(figure, path)


def line_style(number: int) -> dict[str, Any]:
    """Return the look of a line: neighbours differ in colour and marker, others in dash and marker."""
    turn, place = divmod(number, len(COLOURS))
    return look(place, turn, marker=MARKERS[(place + turn) % len(MARKERS)], filled=turn % 2 == 0)


def look(colour: int, dash: int, *, marker: str, filled: bool = True) -> dict[str, Any]:
    """Return the look of a line in one of `COLOURS` and one of `DASHES`, counted round and round."""
    own = COLOURS[colour % len(COLOURS)]
    pattern = DASHES[dash % len(DASHES)]
    shows_through = {} if pattern == DASHES[0] else {"gapcolor": "white"}  # upon a solid line of one colour
    return {
        **shows_through,
        "color": own,
        "linestyle": pattern,
        "linewidth": 1.6,
        "marker": marker,
        "markersize": 4.5,
        "markerfacecolor": own if filled else "white",
    }


def every_tick(values: Sequence[int], spell: Callable[[int], str], most: int) -> dict[float, str]:
    """Return the ticks at *values*, or at every n-th such that they are *most* or fewer."""
    step = -(-len(values) // most)
    return {value: spell(value) for value in values[::step]}


def _draw(panel: Panel, axis: CommonAxis, place: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    for line in panel.lines:
        if line.points:
            place.plot(*zip(*line.points, strict=True), label=line.label or None, **line.style)
    for level in panel.levels:
        place.axhline(level.value, label=level.label or None, **level.style)
    if axis.marked is not None:
        place.axvline(axis.marked, color=QUIET, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)

    place.set_xscale("log", base=2 if axis.ticks else 10)
    if axis.ticks:
        place.set_xticks(list(axis.ticks), list(axis.ticks.values()))
    else:
        place.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))

    if panel.log:
        place.set_yscale("log")
        low, high = place.get_ylim()
        if high < 100 * low:  # powers of ten alone would be too few
            place.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    else:
        place.set_ylim(panel.bottom, panel.top)
    place.yaxis.set_major_formatter(FuncFormatter(lambda value, _: panel.spell(value)))

    if panel.heading:
        place.set_title(panel.heading, loc="left", fontsize=10, color=INK, fontweight="bold")
    dress(place)


def _legend_beside(drawn: Any) -> None:
    """Set one legend to the right of the first row, with each label of all panels once."""
    handle_of: dict[str, Any] = {}
    for place in drawn.flat:
        for handle, label in zip(*place.get_legend_handles_labels(), strict=True):
            handle_of.setdefault(label, handle)
    if handle_of:
        drawn[0][-1].legend(
            handle_of.values(),
            handle_of.keys(),
            loc="upper left",
            bbox_to_anchor=(1.0, 1.02),
            handlelength=3.4,
            frameon=False,
            labelcolor=INK,
            fontsize=9,
        )
