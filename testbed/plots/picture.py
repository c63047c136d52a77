"""Pictures: any figure by matplotlib, as a file in the format that its suffix names, or inside a page.

Parts of a picture have a name (``gid``), such as ``line-0-1``, by which `testbed.plots.inline` finds them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from collectives.formats.whole_file import write_whole
from testbed.errors import UsageError
from testbed.output.figure import DASHES, INK, MARKS, QUIET, annotate, check_plot, dress, new_figure, save
from testbed.plots.drawn_network import DrawnNetwork
from testbed.plots.figure import Axis, Drawing, Kind, Line, Lines, Panel, Shares
from testbed.plots.network_picture import draw_network
from testbed.plots.timeline import Lane, Timeline, Window, kind_of, merged

CHARACTERS_PER_INCH = 16
"""Of the note below."""
SLANT = 20
"""Degrees of names beside points, which hide each other less so."""
ROOM_FOR_TICKS = {1: 10, 2: 7, 3: 6}
"""Ticks below a panel at most, by the panels beside each other; of more panels 5."""
LITERAL: Any = {"text.parse_math": False}
"""Of names, in which a dollar begins no formula."""

Figure: TypeAlias = Lines | Shares | Drawing | DrawnNetwork | Timeline


def draw(figure: Figure, path: Path, *, title: str, note: str) -> None:
    """Draw *figure* to *path*, with the *title* above and the *note* below, in small print.

    Raises:
        UsageError: matplotlib is not installed, or cannot write this format.
        OSError: *path* cannot be written.
    """
    if isinstance(figure, Drawing):
        if path.suffix.lower() != ".svg":
            raise UsageError(f"--plot {path}: this drawing is an SVG; expected a name that ends in .svg")
        write_whole(path, figure.svg)
        return
    check_plot(path)

    if isinstance(figure, Timeline):
        figure, left_out = figure.first_rows()
        note += f" {left_out} more ranks are not drawn." if left_out else ""
    import matplotlib

    with matplotlib.rc_context(LITERAL):
        picture = drawn(figure)
        annotate(picture, title, note, round(CHARACTERS_PER_INCH * picture.get_figwidth()))
        save(picture, path)


def drawn(figure: Lines | Shares | DrawnNetwork | Timeline) -> Any:
    """Return *figure* as one of matplotlib."""
    if isinstance(figure, Timeline):
        return draw_timeline(figure)
    if isinstance(figure, Lines):
        return draw_lines(figure)
    return draw_shares(figure) if isinstance(figure, Shares) else draw_network(figure)


def draw_lines(lines: Lines) -> Any:
    """Return the figure of matplotlib."""
    columns, rows = len(lines.rows[0]), len(lines.rows)
    width, height = 9.5 if columns == 1 else 5.0 + 3.3 * columns, 3.6 + 1.8 * rows
    figure = new_figure(width, height, wspace=0.05, hspace=0.04)
    places = figure.subplots(rows, columns, squeeze=False, sharex=True)
    panels = [*zip(chain(*lines.rows), places.flat, strict=True)]
    for number, (panel, place) in enumerate(panels):
        first, beside = panels[number - number % columns]
        if panel is not first and panel.axis.quantity == first.axis.quantity:
            place.sharey(beside)
            place.tick_params(labelleft=False)
        else:
            place.set_ylabel(panel.axis.quantity, color=INK)
        _draw_panel(panel, place, number)
        if lines.marked is not None:
            place.axvline(lines.marked, color=QUIET, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
    for panel, place in panels:
        _set_axis(place, "x", lines.axis, ROOM_FOR_TICKS.get(columns, 5))
        _set_axis(place, "y", panel.axis)
        dress(place)
    for place in places[-1]:
        place.set_xlabel(lines.axis.quantity, color=INK)
    _legend_beside(places)
    return figure


def _draw_panel(panel: Panel, place: Any, number: int) -> None:
    for own, line in enumerate(panel.lines):
        if line.points:
            called = {"label": line.name or None, "gid": f"line-{number}-{own}"}
            place.plot(*zip(*line.points, strict=True), **called, **_style(line))
        for (x, y), name in zip(line.points, line.names, strict=False) if line.written else ():
            place.annotate(
                name, (x, y), (5, 4), textcoords="offset points", fontsize=8, color=INK, rotation=SLANT
            )
    for own, level in enumerate(panel.levels):
        style = {"color": level.colour, "linestyle": DASHES[level.dash], "linewidth": level.width}
        called = {"label": level.name or None, "gid": f"level-{number}-{own}"}
        place.axhline(level.value, zorder=0, **called, **style)
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


def _set_axis(place: Any, which: str, axis: Axis, most: int = 10) -> None:
    """Give the axis *which*, ``x`` or ``y``, its scale, its range and ticks, about so many at *most*."""
    from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator

    getattr(place, f"set_{which}scale")("log" if axis.log else "linear")
    getattr(place, f"set_{which}lim")(axis.low, axis.high)
    low, high = getattr(place, f"get_{which}lim")()
    locator: Any = MaxNLocator(8, steps=(1, 2, 5, 10))
    if axis.at:
        locator = FixedLocator(_apart(sorted({*axis.at}), most, is_log=axis.log))
    elif axis.log and high > 10 * low:
        locator = LogLocator(subs=(1.0, 2.0, 5.0) if high < 300 * low else (1.0,))
    shown = getattr(place, f"{which}axis")
    shown.set_major_locator(locator)
    shown.set_major_formatter(lambda value, _: axis.spell(value))


def _apart(places: Sequence[float], most: int, *, is_log: bool) -> list[float]:
    """Return those of *places*, in their order, whose names have room beside each other."""
    at = [math.log(place) if is_log else place for place in places]
    kept: list[int] = []
    for number, own in enumerate(at):
        if not kept or own - at[kept[-1]] >= 0.999 * (at[-1] - at[0]) / most:
            kept.append(number)
    return [places[number] for number in kept]


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


def draw_timeline(timeline: Timeline) -> Any:
    """Return the figure of matplotlib; of a long timeline, below it a part drawn larger."""
    lanes, part = list(timeline.lanes()), timeline.part()
    whole = (0, timeline.until)
    windows = [whole] if part is None else [whole, part]
    height = lanes[-1].top + lanes[-1].height
    figure = new_figure(10.5, 1.3 + len(windows) * (0.55 + 0.34 * height))
    panels = figure.subplots(len(windows), squeeze=False)[:, 0]

    scale, unit = timeline.unit()
    kinds = timeline.kinds()
    for panel, window in zip(panels, windows, strict=True):
        for lane in lanes:
            _draw_lane(panel, lane, kinds, window, scale)
        panel.set_ylim(height, 0)
        panel.set_xlim(window[0] * scale, window[1] * scale)
        _name_bars(panel, [(lane.top + lane.height / 2, lane.label) for lane in lanes])
        panel.set_xlabel(f"{timeline.since} ({unit})", color=INK, fontsize=9)
    if part is not None:
        panels[0].axvspan(*(edge * scale for edge in part), color=INK, alpha=0.12, linewidth=0)
        panels[1].set_title("the shaded part", loc="left", fontsize=8.5, color=QUIET)
    _add_legend(panels[0], [kind for kind in kinds.values() if kind.name])
    return figure


def draw_shares(shares: Shares) -> Any:
    """Return the figure of matplotlib."""
    figure = new_figure(10.5, 1.6 + 0.36 * len(shares.cases))
    panel = figure.subplots()
    parts = shares.pieces()
    for number, (kind, bars) in enumerate(parts):
        for row, (left, right) in enumerate(bars):
            called = {"gid": f"piece-{number}-{row}"}
            panel.broken_barh([(left, right - left)], (row + 0.15, 0.7), **called, **_look(kind))
    for row, band in enumerate(shares.within):
        panel.plot(band, (row + 0.5, row + 0.5), color=INK, linewidth=1.0)
    panel.set_ylim(len(shares.cases), 0)
    panel.set_xlim(0, 1.02 * shares.longest())
    _name_bars(panel, [(row + 0.5, case) for row, case in enumerate(shares.cases)])
    panel.set_xlabel(shares.axis.quantity, color=INK, fontsize=9)
    _add_legend(panel, [kind for kind, _ in parts])
    return figure


def _draw_lane(panel: Any, lane: Lane, kinds: dict[str, Kind], window: Window, scale: float) -> None:
    start, end = window
    shown = [piece for piece in lane.pieces if piece[1] > start and piece[0] < end]
    where = lane.top + 0.06, lane.height - 0.12
    for name, kind in kinds.items():
        own = [piece for piece in shown if kind_of(lane.track, piece[2]) == name]
        bars = [(begin * scale, (until - begin) * scale) for begin, until, _ in merged(own, lane.track)]
        if bars:
            panel.broken_barh(bars, where, **_look(kind))


def _look(kind: Kind) -> dict[str, Any]:
    if not kind.hatched:
        return {"color": kind.colour}
    return {"facecolor": "white", "edgecolor": kind.colour, "hatch": "/////", "linewidth": 0}


def _name_bars(panel: Any, names: Sequence[tuple[float, str]]) -> None:
    panel.set_yticks([at for at, _ in names], [name for _, name in names])
    dress(panel)
    panel.grid(False, axis="y")


def _add_legend(panel: Any, kinds: Sequence[Kind]) -> None:
    from matplotlib.patches import Patch

    panel.legend(
        handles=[Patch(**_look(kind), label=kind.name) for kind in kinds], loc="lower left",
        bbox_to_anchor=(-0.005, 1.0), ncols=max(1, len(kinds)), frameon=False, fontsize=8, labelcolor=INK,
        borderaxespad=0.2, columnspacing=1.0, handlelength=1.2, handletextpad=0.5,
    )  # fmt: skip
