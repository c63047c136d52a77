"""Timelines and shares as pictures: bars, hatched where they wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from testbed.output.figure import INK, QUIET, dress, new_figure
from testbed.plots.figure import Shares
from testbed.plots.timeline import Kind, Lane, Timeline, Window, kind_of, merged


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
    for name, colour, is_hatched, bars in parts:
        for row, (left, right) in enumerate(bars):
            panel.broken_barh(
                [(left, right - left)], (row + 0.15, 0.7), **_look(Kind(name, colour, is_hatched))
            )
    panel.set_ylim(len(shares.cases), 0)
    panel.set_xlim(0, 1.02 * shares.longest())
    _name_bars(panel, [(row + 0.5, case) for row, case in enumerate(shares.cases)])
    panel.set_xlabel(shares.axis.quantity, color=INK, fontsize=9)
    _add_legend(panel, [Kind(name, colour, is_hatched) for name, colour, is_hatched, _ in parts])
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
