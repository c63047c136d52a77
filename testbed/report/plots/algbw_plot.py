"""Time and bus bandwidth of simulated collectives over size, a line per algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.output.figure import INK, annotate, check_plot, dress, new_figure, save
from testbed.output.table import spell_size
from testbed.report.plots.size_plot import line_style, time_tick

if TYPE_CHECKING:
    from testbed.studies.simulation import Simulated

MAX_TICKS = 7


def plot_sizes(results: Sequence[Simulated], path: Path, *, title: str, note: str) -> None:
    """Draw *results* to *path*, in the format that its suffix names.

    The legend is in the order in which the lines of bandwidth end.

    Raises:
        UsageError: matplotlib is not installed, or cannot write this format.
        OSError: *path* cannot be written.
    """
    check_plot(path)
    from matplotlib.ticker import FuncFormatter

    figure = new_figure(12.0, 5.2, wspace=0.05)
    left, right = figure.subplots(1, 2)
    names = list(dict.fromkeys(own.name for own in results))
    lines = {
        name: sorted(
            (own.run.nbytes, own.run.seconds, own.run.busbw / 1e9, own.run.floor_seconds)
            for own in results
            if own.name == name and own.run.seconds
        )
        for name in names
    }
    styles = {name: line_style(number) for number, name in enumerate(names)}
    for name in sorted(filter(lines.get, names), key=lambda name: lines[name][-1][2], reverse=True):
        at, seconds, busbw, _ = zip(*lines[name], strict=True)
        left.plot(at, seconds, label=name, **styles[name])
        right.plot(at, busbw, label=name, **styles[name])
    floor = sorted({(size, below) for points in lines.values() for size, _, _, below in points if below})
    if floor:
        left.plot(*zip(*floor, strict=True), label="floor", color="#9A9A9A", linewidth=1.0, zorder=1)
    left.set_yscale("log")
    left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: time_tick(value)))
    right.set_ylim(bottom=0)
    sizes = sorted({own.run.nbytes for own in results})
    step = -(-len(sizes) // MAX_TICKS)
    for panel, what in ((left, "time"), (right, "bus bandwidth, GB/s")):
        panel.set_xscale("log", base=2)
        panel.set_xticks(sizes[::step], [spell_size(size) for size in sizes[::step]])
        dress(panel)
        panel.set_xlabel("size of the buffer", color=INK)
        panel.set_ylabel(what, color=INK)
    beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.02), "handlelength": 3.4}
    handles, labels = left.get_legend_handles_labels()
    if handles:
        right.legend(handles, labels, **beside, frameon=False, labelcolor=INK, fontsize=9)
    annotate(figure, title, note, 170)
    save(figure, path)
