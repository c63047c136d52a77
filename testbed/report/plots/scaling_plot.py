"""Scaling as small multiples: a column per network, efficiency above, exposed communication below.

Colour says the profile and the dash says the strategy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.output.figure import COLOURS, DASHES, INK, annotate, check_plot, dress, new_figure, save
from testbed.studies.predict import strategy_title

if TYPE_CHECKING:
    from testbed.studies.predict import Point


def plot_scaling(points: Sequence[Point], path: Path, *, title: str, note: str) -> None:
    """Draw *points* to *path*, in the format that its suffix names.

    Raises:
        UsageError: matplotlib is not installed, or cannot write this format.
        OSError: *path* cannot be written.
    """
    check_plot(path)
    from matplotlib.ticker import FuncFormatter

    networks = list(dict.fromkeys(point.network for point in points))
    figure = new_figure(max(7.0, 1.6 + 3.3 * len(networks)), 7.0, wspace=0.06, hspace=0.04)
    panels = figure.subplots(2, len(networks), sharex=True, sharey="row", squeeze=False)
    ranks = sorted({point.ranks for point in points})
    for column, network in enumerate(networks):
        own = [point for point in points if point.network == network]
        above, below = panels[0][column], panels[1][column]
        for profile, strategy, line, style in _lines(points, own):
            label = f"{profile}, {strategy_title(strategy)}"
            above.plot([p.ranks for p in line], [100 * p.efficiency for p in line], label=label, **style)
            line = [p for p in line if p.exposed_seconds > 0]
            below.plot([p.ranks for p in line], [1e3 * p.exposed_seconds for p in line], **style)
        above.set_title(network, loc="left", fontsize=10, color=INK, fontweight="bold")
        below.set_yscale("log")
        below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for panel in (above, below):
            panel.set_xscale("log", base=2)
            shown = ranks if len(ranks) <= 6 else ranks[::2]
            panel.set_xticks(shown, [str(rank) for rank in shown])
            dress(panel)
        below.set_xlabel("ranks", color=INK)
    panels[0][0].set_ylim(0, 104)
    panels[0][0].set_ylabel("scaling efficiency (%)", color=INK)
    panels[1][0].set_ylabel("exposed communication (ms per step)", color=INK)
    handles, labels = panels[0][0].get_legend_handles_labels()
    legend: dict[str, Any] = {"frameon": False, "labelcolor": INK}
    if len(networks) > 2:
        place: dict[str, Any] = {
            "loc": "upper left",
            "bbox_to_anchor": (0.0, 0.965),
            "ncols": len(labels),
            "fontsize": 9,
        }
        figure.legend(handles, labels, **place, **legend)
    else:
        panels[0][0].legend(handles, labels, loc="lower left", fontsize=8, **legend)
    annotate(figure, f"{title}\n", note, 46 * len(networks))
    save(figure, path)


def _lines(
    points: Sequence[Point], own: Sequence[Point]
) -> list[tuple[str, str, list[Point], dict[str, Any]]]:
    profiles = list(dict.fromkeys(point.profile for point in points))
    strategies = list(dict.fromkeys(point.strategy for point in points))
    lines = []
    for p, profile in enumerate(profiles):
        for s, strategy in enumerate(reversed(strategies)):
            line = [point for point in own if (point.profile, point.strategy) == (profile, strategy)]
            style = {
                "color": COLOURS[p % len(COLOURS)],
                "linestyle": DASHES[s % len(DASHES)],
                "linewidth": 1.8,
                "marker": "o",
                "markersize": 3.5,
                "markerfacecolor": COLOURS[p % len(COLOURS)] if s == 0 else "white",
            }
            lines.append((profile, strategy, line, style))
    return lines
