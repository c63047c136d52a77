"""Plots of what the engines cost: over the number of ranks, beside other simulators, and over the size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine_cases import CASES, OVER_N, OVER_SIZE_N, SIZES, over_size

from testbed.output.figure import COLOURS, DASHES, INK, annotate, check_plot, dress, new_figure, save
from testbed.output.table import seconds, spell_size

OURS = {
    "makespan": {"color": COLOURS[0], "marker": "o"},
    "makespan, does not divide": {
        "color": COLOURS[0],
        "marker": "o",
        "markerfacecolor": "white",
        "linestyle": DASHES[1],
    },
    "events": {"color": COLOURS[1], "marker": "s"},
}
PEERS = {
    "SimGrid": ("simgrid", "D"),
    "ASTRA-sim, no contention": ("astra", "^"),
    "LogGOPSim": ("loggopsim", "v"),
}
LINE: dict[str, Any] = {"linewidth": 1.8, "markersize": 5}


def draw(taken: Mapping[str, float], path: Path) -> None:
    """Draw wall seconds by title of the case to *path*.

    Raises:
        UsageError: matplotlib is not installed, or cannot write this format.
        OSError: *path* cannot be written.
    """
    check_plot(path)
    figure = new_figure(11, 4.8, wspace=0.06)
    left, right = figure.subplots(1, 2)
    _over_n(left, taken)
    _over_size(right, taken)
    annotate(
        figure,
        "What a simulated ring all-reduce costs",
        "Wall time of a fresh process, without imports; best of three. In grey: other simulators, same "
        "rings, on another machine of 2 cores. Where a size does not divide and is below about N² bytes, "
        "some chunks are empty.",
        165,
    )
    save(figure, path)


def _over_n(panel: Any, taken: Mapping[str, float]) -> None:
    for name, (field, marker) in PEERS.items():
        took = {
            int(case.name.removeprefix("sw, N = ")): getattr(case.peers, field)
            for case in CASES
            if case.engine == "events" and case.name.startswith("sw, N") and getattr(case.peers, field)
        }
        panel.plot(
            list(took),
            list(took.values()),
            label=name,
            color="#9A9A9A",
            marker=marker,
            linewidth=1,
            markersize=5,
        )
    for name, cases in OVER_N.items():
        counts = [int(case.name.removeprefix("sw, N = ").partition(",")[0]) for case in cases]
        panel.plot(counts, [taken[case.title] for case in cases], label=name, **LINE, **OURS[name])
    panel.set_xscale("log", base=2)
    counts = [64, 256, 1024, 4096, 16_384]
    panel.set_xticks(counts, [f"{n:,}".replace(",", " ") for n in counts])
    _finish(panel, "1 GiB on a switch", "number of ranks", "wall time")


def _over_size(panel: Any, taken: Mapping[str, float]) -> None:
    for engine in ("events", "makespan"):
        for name, sizes in SIZES.items():
            times = [taken[over_size(engine, size).title] for size in sizes]
            look = dict(OURS[engine])
            if name == "divides":
                look |= LINE
            else:
                look |= {"linestyle": "none", "markerfacecolor": "white", "markersize": 5}
            panel.plot(sizes, times, label=f"{engine}, {name}", **look)
    panel.set_xscale("log", base=2)
    ticks = [2**k for k in range(10, 31, 4)]
    panel.set_xticks(ticks, [spell_size(size) for size in ticks])
    _finish(panel, f"{OVER_SIZE_N} ranks on a switch", "size of the buffer", "")


def _finish(panel: Any, title: str, across: str, up: str) -> None:
    from matplotlib.ticker import FuncFormatter

    panel.set_title(title, loc="left", fontsize=10, color=INK)
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    dress(panel)
    panel.set_xlabel(across, color=INK)
    panel.set_ylabel(up, color=INK)
    panel.legend(frameon=False, labelcolor=INK, fontsize=8.5)


def _tick(value: float) -> str:
    number, unit = seconds(value).split()
    return f"{float(number):g} {unit}"
