"""One iteration on GPUs in virtual time: the host and each stream of a rank as a lane of its own.

The compute stream is hatched where it waits.  A long iteration is drawn twice: whole, and below it so much of
its backward pass that single collectives can be told apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import UsageError
from testbed.output.figure import COLOURS, INK, QUIET, annotate, check_plot, dress, new_figure, save
from testbed.plots.timeline_plot import Piece, bars, between, ends_of, merged, unit_of

if TYPE_CHECKING:
    from collectives.virtual import VirtualReport
    from sim import Trace

MOST_RANKS = 4
"""Ranks that are drawn, each with several lanes; of those that look alike, the first."""
_PIXELS = 500

HOST, COMPUTE, COMMUNICATION = "host", "compute", "communication"
BETWEEN_RANKS = (COMMUNICATION, "messages")
"""How the tracks of streams begin on which collectives and messages are."""

_COLOURS = {
    "forward": COLOURS[5],
    "backward": COLOURS[0],
    "optimizer": COLOURS[2],
    "all_gather": COLOURS[4],
    "reduce_scatter": COLOURS[1],
    "all_reduce": COLOURS[3],
}
_WORDS = {"all_gather": "all-gather", "reduce_scatter": "reduce-scatter", "all_reduce": "all-reduce"}
_OTHER_COMPUTE, _OTHER_CALL, _HOST_COLOUR, _WAITING = "#B5B5B5", "#7A5C3E", "#8C8C8C", "#C9C9C9"
_THICK = {COMPUTE: 1.0, HOST: 0.4}
_LANE, _BETWEEN = 0.62, 0.3
_MANY, _FEW = 60, 7
"""Collectives on one lane from which on a part is drawn larger, and how many that part shows."""


@dataclass(frozen=True)
class Lane:
    """A stream of one rank, or its host.

    Attributes:
        rank: whose it is.
        track: of the trace.
        pieces: of time by name, in picoseconds since the iteration began on the first rank.
        waited: when it did nothing, of the compute stream alone.
    """

    rank: int
    track: str
    pieces: Mapping[str, Sequence[Piece]]
    waited: Sequence[Piece]


def is_of_streams(trace: Trace) -> bool:
    """Return whether *trace* is of ranks on GPUs."""
    return any(span.track == HOST for span in trace.spans)


def plot_streams(trace: Trace, report: VirtualReport, path: Path, *, title: str, note: str) -> None:
    """Draw the last iteration of a run to *path*, in the format that its suffix names.

    Raises:
        UsageError: nothing took any time, matplotlib is not installed, or cannot write this format.
        OSError: *path* cannot be written.
    """
    check_plot(path)
    lanes, until_ps = lanes_of(trace, report)
    if not until_ps:
        raise UsageError(f"{path.name}: there is no timeline to draw, as nothing took any time")
    part = part_of(lanes)
    windows = [(0, until_ps)] if part is None else [(0, until_ps), part]
    height = sum(_THICK.get(lane.track, _LANE) for lane in lanes)
    figure = new_figure(10.5, 1.3 + len(windows) * (0.55 + 0.34 * height))
    panels = figure.subplots(len(windows), squeeze=False)[:, 0]

    for panel, window in zip(panels, windows, strict=True):
        _draw(panel, lanes, window)
    if part is not None:
        panels[0].axvspan(*(edge * unit_of(until_ps)[0] for edge in part), color=INK, alpha=0.12, linewidth=0)
        panels[1].set_title("the shaded part", loc="left", fontsize=8.5, color=QUIET)
    _add_legend(panels[0], lanes)
    ranks = {lane.rank for lane in lanes}
    left_out = report.num_ranks - len(ranks)
    more = f" {left_out} more ranks are not drawn; ranks that look alike are drawn once." if left_out else ""
    annotate(figure, title, f"{note}{more}", 165)
    save(figure, path)


def lanes_of(trace: Trace, report: VirtualReport) -> tuple[list[Lane], int]:
    """Return the lanes of the last iteration, rank by rank, and when the last rank has finished it."""
    ranks = _unlike(trace, report)[:MOST_RANKS]
    ends = {rank: ends_of(report, rank) for rank in ranks}
    zero, until = min(start for start, _ in ends.values()), max(end for _, end in ends.values())
    pieces: dict[tuple[int, str], dict[str, list[Piece]]] = defaultdict(lambda: defaultdict(list))

    for span in trace.spans:
        if span.rank not in ends or span.end_ps is None:
            continue
        start, end = max(span.start_ps, zero) - zero, min(span.end_ps, until) - zero
        name = span.args.get("pass") or span.name  # of kernels on the compute stream
        if start < end:
            pieces[span.rank, span.track][name].append((start, end))

    lanes = []
    for (rank, track), by_name in sorted(pieces.items(), key=lambda lane: _order(*lane[0])):
        waited: Sequence[Piece] = ()
        if track == COMPUTE:
            busy = merged(piece for own in by_name.values() for piece in own)
            waited = between(busy, ends[rank][0] - zero, ends[rank][1] - zero)
        lanes.append(Lane(rank, track, dict(by_name), waited))
    return lanes, until - zero


def _unlike(trace: Trace, report: VirtualReport) -> list[int]:
    """Return the ranks of which the last iteration looks otherwise than those of the ranks before them."""
    ranks = sorted({span.rank for span in trace.spans if span.track == HOST})
    ends = {rank: ends_of(report, rank) for rank in ranks}
    computed: dict[int, list[Piece]] = {rank: [] for rank in ranks}
    for span in trace.spans:
        if span.track != COMPUTE or span.rank not in computed or span.end_ps is None:
            continue
        start, end = ends[span.rank]
        if start <= span.start_ps and span.end_ps <= end:
            pixel = max(1, (end - start) // _PIXELS)
            computed[span.rank].append(((span.start_ps - start) // pixel, (span.end_ps - start) // pixel + 1))

    first: dict[tuple[Piece, ...], int] = {}
    for rank in ranks:
        first.setdefault(tuple(merged(computed[rank])), rank)
    return list(first.values())


def part_of(lanes: Sequence[Lane]) -> Piece | None:
    """Return what of the iteration is worth drawing larger; None where all of it can be seen."""
    calls = [
        sorted(piece for own in lane.pieces.values() for piece in own)
        for lane in lanes
        if lane.track.startswith(COMMUNICATION)
    ]
    most = max(calls, key=len, default=[])
    if len(most) < _MANY:
        return None
    backward = [piece for lane in lanes for piece in lane.pieces.get("backward", ())]
    middle = sum(backward[len(backward) // 2]) // 2 if backward else most[len(most) // 2][0]
    first = min(
        next((n for n, (start, _) in enumerate(most) if start >= middle), len(most)), len(most) - _FEW
    )
    return most[first][0], most[first + _FEW - 1][1]


def _order(rank: int, track: str) -> tuple[int, int, str]:
    first = (HOST, COMPUTE)
    kind = first.index(track) if track in first else 3 if track.startswith(BETWEEN_RANKS) else 2
    return rank, kind, track


def _draw(panel: Any, lanes: Sequence[Lane], window: Piece) -> None:
    start, end = window
    scale, unit = unit_of(end)
    top = 0.0
    labels: list[tuple[float, str]] = []
    several = len({lane.rank for lane in lanes}) > 1
    for lane in lanes:
        height = _THICK.get(lane.track, _LANE)
        of_rank = f"rank {lane.rank}: " if several and lane.track == HOST else ""
        top += _BETWEEN if of_rank and labels else 0.0
        for name, pieces in lane.pieces.items():
            shown = [piece for piece in pieces if piece[1] > start and piece[0] < end]
            panel.broken_barh(
                bars(merged(shown), scale), (top + 0.06, height - 0.12), color=_colour(lane, name)
            )
        if lane.waited:
            panel.broken_barh(
                bars(lane.waited, scale), (top + 0.06, height - 0.12),
                facecolor="white", edgecolor=_WAITING, hatch="/////", linewidth=0,
            )  # fmt: skip
        labels.append((top + height / 2, of_rank + lane.track))
        top += height

    panel.set_ylim(top, 0)
    panel.set_xlim(start * scale, end * scale)
    panel.set_yticks([at for at, _ in labels], [text for _, text in labels])
    panel.set_xlabel(
        f"virtual time since the iteration began on the first rank ({unit})", color=INK, fontsize=9
    )
    dress(panel)
    panel.grid(False, axis="y")


def _colour(lane: Lane, name: str) -> str:
    if lane.track == HOST:
        return _HOST_COLOUR if not name.startswith("waits") else _WAITING
    other = _OTHER_CALL if lane.track.startswith(BETWEEN_RANKS) else _OTHER_COMPUTE
    return _COLOURS.get(_kind(name), other)


def _kind(name: str) -> str:
    return name.partition(" ")[0]


def _add_legend(panel: Any, lanes: Iterable[Lane]) -> None:
    from matplotlib.patches import Patch

    shown = {_kind(name) for lane in lanes for name in lane.pieces if lane.track != HOST}
    entries = [
        Patch(color=colour, label=_WORDS.get(name, name))
        for name, colour in _COLOURS.items()
        if name in shown
    ]
    others = {_colour(lane, name) for lane in lanes for name in lane.pieces}
    if _OTHER_CALL in others:
        entries.append(Patch(color=_OTHER_CALL, label="other communication"))
    if _OTHER_COMPUTE in others:
        entries.append(Patch(color=_OTHER_COMPUTE, label="other kernels"))
    if any(lane.waited for lane in lanes):
        entries.append(Patch(facecolor="white", edgecolor=_WAITING, hatch="/////", label="waiting"))
    panel.legend(
        handles=entries, loc="lower left", bbox_to_anchor=(-0.005, 1.0), ncols=len(entries), frameon=False,
        fontsize=8.5, labelcolor=INK, borderaxespad=0.2, columnspacing=1.4, handlelength=1.4,
    )  # fmt: skip
