"""One iteration of a script in virtual time, drawn rank by rank: computation, communication, waiting.

The upper, thick bar of a rank is computation, hatched where it waits; the lower, thin one shows when its
collectives and messages were under way.  So communication that is hidden stands below computation, and
exposed communication below a hatched piece.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import UsageError
from testbed.output.figure import COLOURS, INK, annotate, check_plot, dress, new_figure, save
from testbed.output.table import counted, percent, seconds

if TYPE_CHECKING:
    from collectives.virtual import VirtualReport
    from sim import Trace
    from sim.trace import Span

MOST_ROWS = 8
"""Rows that are drawn, each of ranks that did the same at the same times; a note says what is left out."""

_PASSES = {"forward": COLOURS[5], "backward": COLOURS[0], "optimizer": COLOURS[2]}
_OTHER, _WAITING, _COMMUNICATION = "#B5B5B5", "#C9C9C9", COLOURS[1]
_UNDER_WAY = "communication", "messages"  # tracks; others show the host, and other streams of a GPU
_PS = 10**12
_TOP, _THICK, _THIN = 0.08, 0.5, 0.22

Piece = tuple[int, int]


@dataclass(frozen=True)
class Timeline:
    """What happened on each rank in one iteration; times are picoseconds since it began on the first rank.

    Attributes:
        ranks: of all that took part.
        computed: of each rank, pieces of computation by the name of the pass.
        communicated: of each rank, when communication was under way.
        waited: of each rank, when it did not compute.
        until_ps: when the last rank has finished the iteration.
    """

    ranks: Sequence[int]
    computed: Sequence[dict[str, list[Piece]]]
    communicated: Sequence[list[Piece]]
    waited: Sequence[list[Piece]]
    until_ps: int

    @classmethod
    def of_last_iteration(cls, trace: Trace, report: VirtualReport) -> Timeline:
        """Return the last iteration that all ranks have finished, or where there is none the whole run."""
        ranks = range(report.num_ranks)
        ends = {rank: ends_of(report, rank) for rank in ranks}
        zero, until = min(start for start, _ in ends.values()), max(end for _, end in ends.values())
        by_rank: dict[int, list[Span]] = defaultdict(list)

        for span in trace.spans:
            by_rank[span.rank].append(span)

        met = _both_there(trace.spans)
        computed, communicated, waited = [], [], []

        for rank in ranks:
            passes: dict[str, list[Piece]] = defaultdict(list)
            under_way, busy = [], []
            own_start, own_end = ends[rank]
            for span in by_rank[rank]:
                if span.end_ps is None or span.end_ps <= own_start or span.start_ps >= own_end:
                    continue
                start = met.get((span.track, span.name), span.start_ps)
                piece = max(start, own_start) - zero, min(span.end_ps, own_end) - zero
                if span.track == "compute":
                    passes[span.args.get("pass", span.name)].append(piece)
                    busy.append(piece)
                elif span.track.startswith(_UNDER_WAY) and piece[0] < piece[1]:
                    under_way.append(piece)
            computed.append(dict(passes))
            communicated.append(merged(under_way))
            waited.append(between(merged(busy), own_start - zero, own_end - zero))

        return cls(ranks, computed, communicated, waited, until - zero)

    def alike(self) -> list[list[int]]:
        """Return the ranks in groups of those that did the same at the same times, by their first ranks."""
        groups: dict[object, list[int]] = {}
        for rank in self.ranks:
            computed = tuple((name, tuple(pieces)) for name, pieces in self.computed[rank].items())
            did = computed, tuple(self.communicated[rank]), tuple(self.waited[rank])
            groups.setdefault(did, []).append(rank)
        return list(groups.values())


def plot_timeline(trace: Trace, report: VirtualReport, path: Path, *, title: str, note: str) -> None:
    """Draw the last iteration of a run to *path*, in the format that its suffix names.

    Raises:
        UsageError: nothing took any time, matplotlib is not installed, or cannot write this format.
        OSError: *path* cannot be written.
    """
    check_plot(path)
    timeline = Timeline.of_last_iteration(trace, report)
    if not timeline.until_ps:
        raise UsageError(f"{path.name}: there is no timeline to draw, as nothing took any time")
    scale, unit = unit_of(timeline.until_ps)
    groups = timeline.alike()
    rows = groups[:MOST_ROWS]
    figure = new_figure(9.5, 1.7 + 0.42 * len(rows))
    panel = figure.subplots()

    for row, (rank, *_) in enumerate(rows):
        for name, pieces in timeline.computed[rank].items():
            panel.broken_barh(bars(pieces, scale), (row + _TOP, _THICK), color=_PASSES.get(name, _OTHER))
        hatched: dict[str, Any] = {
            "facecolor": "white",
            "edgecolor": _WAITING,
            "hatch": "/////",
            "linewidth": 0,
        }
        panel.broken_barh(bars(timeline.waited[rank], scale), (row + _TOP, _THICK), **hatched)
        below = (row + _TOP + _THICK, _THIN)
        panel.broken_barh(bars(timeline.communicated[rank], scale), below, color=_COMMUNICATION)

    _add_legend(panel, timeline)
    panel.set_ylim(len(rows), 0)
    panel.set_xlim(0, timeline.until_ps * scale)
    panel.set_yticks([row + 0.45 for row in range(len(rows))], [spell_alike(ranks) for ranks in rows])
    panel.set_xlabel(
        f"virtual time since the iteration began on the first rank ({unit})", color=INK, fontsize=9
    )
    dress(panel)
    panel.grid(False, axis="y")
    left_out = sum(map(len, groups[MOST_ROWS:]))
    more = f" {left_out} more ranks are not drawn." if left_out else ""
    annotate(figure, title, f"{note}{more}", 150)
    save(figure, path)


def spell_alike(ranks: Sequence[int]) -> str:
    """Return ranks that are alike in words, such as ``ranks 0–7 alike``; of several runs the first."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if ranks[-1] - ranks[0] + 1 == len(ranks):
        return f"ranks {ranks[0]}–{ranks[-1]} alike"
    return f"rank {ranks[0]} and {len(ranks) - 1} alike"


def timeline_title(script: str, report: VirtualReport) -> str:
    """Return what a timeline of *report* shows, in words."""
    ranks = counted(report.num_ranks, "rank")
    if not report.iterations:
        return f"{script} on {ranks} of {report.network}"
    spent = report.iterations[-1][0]
    if report.on_gpu:
        return (
            f"{script} on {ranks} of {report.network}: iteration {len(report.iterations)}, "
            f"{seconds(spent.seconds)}, the compute stream busy for "
            f"{percent(spent.compute_seconds / spent.seconds) if spent.seconds else 0}"
        )
    return (
        f"{script} on {ranks} of {report.network}: iteration {len(report.iterations)}, "
        f"{seconds(spent.seconds)}, of it {seconds(spent.exposed_seconds)} waiting for communication"
    )


def ends_of(report: VirtualReport, rank: int) -> Piece:
    """Return when the last iteration began and ended on *rank*, in picoseconds."""
    lengths = [round(iteration[rank].seconds * _PS) for iteration in report.iterations]
    if not lengths:
        return 0, round(report.seconds * _PS)
    return sum(lengths[:-1]), sum(lengths)


def _both_there(spans: Iterable[Span]) -> dict[tuple[str, str], int]:
    """Return when both ends of each message from one rank to another had come to it; until then one waits."""
    met: dict[tuple[str, str], int] = {}
    for span in spans:
        if span.track.startswith("messages"):
            key = span.track, span.name
            met[key] = max(met.get(key, 0), span.start_ps)
    return met


def merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Return *pieces* without overlaps, in order."""
    merged: list[Piece] = []
    for start, end in sorted(pieces):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def between(busy: Sequence[Piece], start: int, end: int) -> list[Piece]:
    """Return what of the time from *start* to *end* is in none of *busy*."""
    edges = [start, *(edge for piece in busy for edge in piece), end]
    return [(idle, until) for idle, until in zip(edges[::2], edges[1::2], strict=True) if idle < until]


def bars(pieces: Iterable[Piece], scale: float) -> list[tuple[float, float]]:
    """Return where *pieces* begin and how long they are, in the plot's unit."""
    return [(start * scale, (end - start) * scale) for start, end in pieces]


def unit_of(until_ps: int) -> tuple[float, str]:
    """Return by what to multiply picoseconds, and the unit that this gives."""
    if until_ps >= 10 * _PS:
        return 1e-12, "s"
    return (1e-9, "ms") if until_ps >= 10**10 else (1e-6, "µs")


def _add_legend(panel: Any, timeline: Timeline) -> None:
    from matplotlib.patches import Patch

    shown = {name for computed in timeline.computed for name in computed}
    entries = [Patch(color=colour, label=name) for name, colour in _PASSES.items() if name in shown]
    if shown - _PASSES.keys():
        entries.append(Patch(color=_OTHER, label="other computation"))
    if any(timeline.communicated):
        entries.append(Patch(color=_COMMUNICATION, label="communication under way"))
    if any(timeline.waited):
        entries.append(Patch(facecolor="white", edgecolor=_WAITING, hatch="/////", label="waiting"))
    panel.legend(
        handles=entries, loc="lower left", bbox_to_anchor=(-0.005, 1.0), ncols=len(entries), frameon=False,
        fontsize=8.5, labelcolor=INK, borderaxespad=0.2, columnspacing=1.4, handlelength=1.4,
    )  # fmt: skip
