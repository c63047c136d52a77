"""Time and bus bandwidth of collectives over the size of the buffer, a line per algorithm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.benchmarking.candidates import NATIVE
from testbed.benchmarking.measure import Row
from testbed.output.figure import INK
from testbed.output.table import seconds, spell_size
from testbed.plots.line_plot import CommonAxis, Line, Panel, every_tick, line_plot, line_style

if TYPE_CHECKING:
    from testbed.studies.simulation import Simulated

MAX_TICKS = 8
FLOOR_STYLE = {"color": "#9A9A9A", "linewidth": 1.0, "zorder": 1}
NATIVE_STYLE = {"color": INK, "linewidth": 2.4, "marker": "o", "markersize": 4.5}


def plot_times(rows: Sequence[Row], path: Path, *, title: str, note: str) -> None:
    """Draw the times of *rows* to *path*, in the format that its suffix names.

    The legend is in the order in which the lines end.

    Raises:
        UsageError: matplotlib is not installed, or cannot write this format.
        OSError: *path* cannot be written.
    """
    names = sorted({row.algorithm for row in rows} - {NATIVE})
    styles = {name: line_style(number) for number, name in enumerate(names)} | {NATIVE: NATIVE_STYLE}
    times = {
        name: sorted(
            (row.size_bytes, row.time_us / 1e6) for row in rows if row.algorithm == name and row.time_us
        )
        for name in styles
    }
    order = sorted(filter(times.get, times), key=lambda name: times[name][-1][::-1], reverse=True)
    floor = {(row.size_bytes, row.floor_us / 1e6) for row in rows if row.floor_us}

    panel = _times("time of a call", times, floor, order, styles)
    line_plot([[panel]], _over(row.size_bytes for row in rows), path, size=(9.5, 5.8), title=title, note=note)


def plot_sizes(results: Sequence[Simulated], path: Path, *, title: str, note: str) -> None:
    """Draw time and bus bandwidth of *results* to *path*, in the format that its suffix names.

    The legend is in the order in which the lines of bandwidth end.

    Raises:
        UsageError: matplotlib is not installed, or cannot write this format.
        OSError: *path* cannot be written.
    """
    names = list(dict.fromkeys(own.name for own in results))
    styles = {name: line_style(number) for number, name in enumerate(names)}
    runs = {name: [own.run for own in results if own.name == name and own.run.seconds] for name in names}
    times = {name: sorted((run.nbytes, run.seconds) for run in own) for name, own in runs.items()}
    busbw = {name: sorted((run.nbytes, run.busbw / 1e9) for run in own) for name, own in runs.items()}
    order = sorted(filter(busbw.get, names), key=lambda name: busbw[name][-1][1], reverse=True)
    floor = {(run.nbytes, run.floor_seconds) for own in runs.values() for run in own if run.floor_seconds}

    left = _times("time", times, floor, order, styles)
    right = Panel("bus bandwidth, GB/s", [Line(busbw[name], name, styles[name]) for name in order])
    axis = _over(own.run.nbytes for own in results)
    line_plot([[left, right]], axis, path, size=(12.0, 5.2), title=title, note=note)


def _times(
    quantity: str,
    times: Mapping[str, Sequence[tuple[float, float]]],
    floor: Iterable[tuple[float, float]],
    order: Sequence[str],
    styles: Mapping[str, Mapping[str, Any]],
) -> Panel:
    """Return the panel of *times*, in this *order*, and of the *floor* below them."""
    lines = [Line(times[name], name, styles[name]) for name in order]
    return Panel(quantity, [*lines, Line(sorted(floor), "floor", FLOOR_STYLE)], log=True, spell=_time_tick)


def _over(sizes: Iterable[int]) -> CommonAxis:
    return CommonAxis("size of the buffer", every_tick(sorted({*sizes}), spell_size, MAX_TICKS))


def _time_tick(value: float) -> str:
    """Return a time without digits that say nothing."""
    number, unit = seconds(value).split()
    return f"{float(number):g} {unit}"
