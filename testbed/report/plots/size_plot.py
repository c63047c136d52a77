"""Times of a collective over size, a line per algorithm, both axes logarithmic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.bench.candidates import NATIVE
from testbed.bench.measure import Row
from testbed.output.figure import COLOURS, DASHES, INK, annotate, check_plot, dress, new_figure, save
from testbed.output.table import seconds, spell_size

MARKERS = "os^DvP"
MAX_TICKS = 8


def plot_times(rows: Sequence[Row], path: Path, *, title: str, note: str) -> None:
    """Draw *rows* to *path*, in the format that its suffix names.

    The legend stands beside the lines, in the order in which they end.

    Raises:
        UsageError: matplotlib is not installed, or cannot write this format.
        OSError: *path* cannot be written.
    """
    check_plot(path)
    from matplotlib.ticker import FuncFormatter

    figure = new_figure(9.5, 5.8)
    panel = figure.subplots()
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    names = sorted({row.algorithm for row in rows} - {NATIVE})
    styles = {name: line_style(number) for number, name in enumerate(names)}
    styles[NATIVE] = {"color": INK, "linewidth": 2.4, "marker": "o", "markersize": 4.5}
    lines = {
        name: sorted(
            (row.size_bytes, row.time_us / 1e6) for row in rows if row.algorithm == name and row.time_us
        )
        for name in styles
    }
    for name in sorted(filter(lines.get, lines), key=lambda name: lines[name][-1][::-1], reverse=True):
        panel.plot(*zip(*lines[name], strict=True), label=name, **styles[name])
    floor = sorted({(row.size_bytes, row.floor_us / 1e6) for row in rows if row.floor_us})
    if floor:
        panel.plot(*zip(*floor, strict=True), label="floor", color="#9A9A9A", linewidth=1.0, zorder=1)
    sizes = sorted({row.size_bytes for row in rows})
    step = -(-len(sizes) // MAX_TICKS)
    panel.set_xticks(sizes[::step], [spell_size(size) for size in sizes[::step]])
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: time_tick(value)))
    dress(panel)
    panel.set_xlabel("size of the buffer", color=INK)
    panel.set_ylabel("time of a call", color=INK)
    if panel.get_legend_handles_labels()[0]:
        beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.02), "handlelength": 3.4}
        panel.legend(**beside, frameon=False, labelcolor=INK, fontsize=9)
    annotate(figure, title, note, 150)
    save(figure, path)


def time_tick(value: float) -> str:
    """Return a time without digits that say nothing."""
    number, unit = seconds(value).split()
    return f"{float(number):g} {unit}"


def line_style(number: int) -> dict[str, Any]:
    """Return the look of a line: neighbours differ in colour and marker, others in dash and marker."""
    turn, place = divmod(number, len(COLOURS))
    return {
        "color": COLOURS[place],
        "linestyle": DASHES[turn % len(DASHES)],
        "linewidth": 1.6,
        "marker": MARKERS[(place + turn) % len(MARKERS)],
        "markersize": 4.5,
        "markerfacecolor": COLOURS[place] if turn % 2 == 0 else "white",
    }
