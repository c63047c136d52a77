"""Scaling as small multiples: a column per network, efficiency above, exposed communication below.

Colours are those of Okabe and Ito, which colour-blind readers tell apart; colour says the
profile and the dash says the strategy, so nothing is said by colour alone.  Drawn without a
display, and without matplotlib's global state.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from testbed.errors import UsageError
from testbed.predict import STRATEGY_TITLES

if TYPE_CHECKING:
    from testbed.predict import Point

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
INK, FAINT = "#333333", "#D9D9D9"


def plot_scaling(points: Sequence[Point], path: Path, *, title: str, note: str) -> None:
    """Draw *points* to *path*, in the format that its suffix names.

    Raises:
        UsageError: matplotlib is not installed, or cannot write this format.
        OSError: *path* cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
        from matplotlib.ticker import FuncFormatter
    except ImportError:
        raise UsageError("plots need matplotlib: pip install 'collective-testbed[plot]'") from None
    suffix = path.suffix.removeprefix(".").lower()
    known = FigureCanvasAgg.get_supported_filetypes()
    if suffix not in known:
        raise UsageError(f"cannot plot to {path.name}: expected a suffix out of {', '.join(sorted(known))}")
    networks = list(dict.fromkeys(point.network for point in points))
    layout = ConstrainedLayoutEngine(wspace=0.06, hspace=0.04)
    figure = Figure(figsize=(max(7.0, 1.6 + 3.3 * len(networks)), 7.0), layout=layout)
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, len(networks), sharex=True, sharey="row", squeeze=False)
    ranks = sorted({point.ranks for point in points})
    for column, network in enumerate(networks):
        own = [point for point in points if point.network == network]
        above, below = panels[0][column], panels[1][column]
        for profile, strategy, line, style in _lines(points, own):
            label = f"{profile}, {STRATEGY_TITLES.get(strategy, strategy)}"
            above.plot([p.ranks for p in line], [100 * p.efficiency for p in line], label=label, **style)
            line = [p for p in line if p.exposed_seconds > 0]
            below.plot([p.ranks for p in line], [1e3 * p.exposed_seconds for p in line], **style)
        above.set_title(network, loc="left", fontsize=10, color=INK, fontweight="bold")
        below.set_yscale("log")
        below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for panel in (above, below):
            _dress(panel, ranks)
        below.set_xlabel("ranks", color=INK)
    panels[0][0].set_ylim(0, 104)
    panels[0][0].set_ylabel("scaling efficiency (%)", color=INK)
    panels[1][0].set_ylabel("exposed communication (ms per step)", color=INK)
    figure.suptitle(f"{title}\n", x=0.01, ha="left", fontsize=12, color=INK, linespacing=1.5)
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
    figure.supxlabel(
        "\n".join(wrap(note, 46 * len(networks))), x=0.01, ha="left", fontsize=8, color="#666666"
    )
    figure.savefig(path, dpi=160, facecolor="white", metadata={"Software": None} if suffix == "png" else None)


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


def _dress(panel: Any, ranks: Sequence[int]) -> None:
    panel.set_xscale("log", base=2)
    shown = ranks if len(ranks) <= 6 else ranks[::2]
    panel.set_xticks(shown, [str(rank) for rank in shown])
    panel.minorticks_off()
    panel.grid(True, color=FAINT, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(colors=INK, labelsize=8.5, length=0)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        panel.spines[side].set_color(FAINT)
