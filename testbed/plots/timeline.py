"""Timeline of ranks: what each of their tracks did when, a row for ranks that did the same.

The compute track also shows where it waits, so that communication that is hidden stands below computation,
and exposed communication below a hatched piece.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from sim import Trace
from sim.trace import Span
from testbed.output.figure import COLOURS
from testbed.output.table import counted, percent, seconds, spans
from testbed.plots.figure import Kind, NoFigure

if TYPE_CHECKING:
    from collectives.virtual import VirtualReport
Piece: TypeAlias = tuple[int, int, str]
"""From when to when, in picoseconds since the timeline began, and what it is called."""
Window: TypeAlias = tuple[int, int]

HOST, COMPUTE, MESSAGES = "host", "compute", "messages"
BETWEEN_RANKS = ("communication", MESSAGES)
"""How tracks begin on which collectives and messages are."""
WAITING = "waiting"
NEVER_ENDED = "never ended"

MOST_LANES = 18
"""Lanes that a picture shows, about; a page shows all."""
RESOLUTION = 2000
"""Parts of the whole time; ranks that agree to one of them are alike."""
MANY_CALLS, FEW_CALLS = 60, 7
"""Collectives on one lane from which on a part is drawn larger, and how many that part shows."""
_PS = 10**12
_HEIGHTS, _LANE, _BETWEEN = {COMPUTE: 1.0, HOST: 0.45}, 0.65, 0.35


KINDS = {
    "forward": Kind("forward", COLOURS[5]),
    "backward": Kind("backward", COLOURS[0]),
    "optimizer": Kind("optimizer", COLOURS[2]),
    "all_gather": Kind("all-gather", COLOURS[4]),
    "reduce_scatter": Kind("reduce-scatter", COLOURS[1]),
    "all_reduce": Kind("all-reduce", COLOURS[3]),
    MESSAGES: Kind("messages", "#7A5C3E"),
    "call": Kind("other communication", "#882255"),
    "kernel": Kind("other computation", "#B5B5B5"),
    WAITING: Kind(WAITING, "#C9C9C9", hatched=True),
    NEVER_ENDED: Kind(NEVER_ENDED, "#B22222", hatched=True),
    "works": Kind("", "#8C8C8C"),
    "waits": Kind("", "#D9D9D9"),
}
"""Kinds of pieces; the last two are of the host."""


def kind_of(track: str, name: str) -> str:
    """Return the kind of a piece of *track*, one of `KINDS`."""
    if name.startswith(NEVER_ENDED):
        return NEVER_ENDED
    if track == HOST:
        return "waits" if name.startswith("waits") else "works"
    first = name.partition(" ")[0]
    if first in KINDS:
        return first
    return MESSAGES if track == MESSAGES else "call" if track.startswith(BETWEEN_RANKS) else "kernel"


@dataclass(frozen=True)
class RankRow:
    """Ranks that did the same at the same times, and the pieces of each of their tracks."""

    ranks: Sequence[int]
    tracks: Mapping[str, Sequence[Piece]]

    @property
    def label(self) -> str:
        """The ranks, in words."""
        return spell_alike(self.ranks)


@dataclass(frozen=True)
class Lane:
    """A track of a row: where it is drawn, *top* and *height*, is in heights of a compute lane."""

    row: RankRow
    track: str
    label: str
    top: float
    height: float
    pieces: Sequence[Piece]


@dataclass(frozen=True)
class Timeline:
    """Rows of ranks over one time, which *since* says in words when it began."""

    rows: Sequence[RankRow]
    since: str = "virtual time"

    @property
    def until(self) -> int:
        """When the last piece ends; 1 where there is none."""
        ends = (end for row in self.rows for lane in row.tracks.values() for _, end, _ in lane)
        return max(ends, default=1)

    def lanes(self) -> Iterator[Lane]:
        """Yield the lanes, from the top down."""
        top = 0.0
        for row in self.rows:
            for number, track in enumerate(sorted(row.tracks, key=_order)):
                label = track if number else f"{row.label}: {track}"
                height = _HEIGHTS.get(track, _LANE)
                yield Lane(row, track, label, top, height, row.tracks[track])
                top += height
            top += _BETWEEN

    def kinds(self) -> dict[str, Kind]:
        """Return the kinds that there are, in the order of the legend."""
        shown = {kind_of(lane.track, name) for lane in self.lanes() for *_, name in lane.pieces}
        return {name: kind for name, kind in KINDS.items() if name in shown}

    def first_rows(self) -> tuple[Timeline, int]:
        """Return what a picture has room for, and how many ranks that leaves out."""
        kept, lanes = 0, 0
        for row in self.rows:
            lanes += len(row.tracks)
            if kept and lanes > MOST_LANES:
                break
            kept += 1
        left_out = sum(len(row.ranks) for row in self.rows[kept:])
        return replace(self, rows=self.rows[:kept]), left_out

    def part(self) -> Window | None:
        """Return what of it is worth drawing larger; None where all of it can be seen."""
        lanes = list(self.lanes())
        most = max(
            (lane.pieces for lane in lanes if lane.track.startswith(BETWEEN_RANKS)), key=len, default=()
        )
        if len(most) < MANY_CALLS:
            return None
        backward = [piece for lane in lanes for piece in lane.pieces if piece[2].startswith("backward")]
        of = backward or most
        middle = sum(of[len(of) // 2][:2]) // 2
        after = (number for number, (start, _, _) in enumerate(most) if start >= middle)
        first = min(next(after, len(most)), len(most) - FEW_CALLS)
        return most[first][0], most[first + FEW_CALLS - 1][1]

    def unit(self) -> tuple[float, str]:
        """Return by what to multiply picoseconds, and the unit that this gives."""
        if self.until >= 10 * _PS:
            return 1e-12, "s"
        return (1e-9, "ms") if self.until >= 10**10 else (1e-6, "µs")


def timeline_of(trace: Trace, windows: Mapping[int, Window] | None = None) -> Timeline:
    """Return the timeline of what *trace* recorded.

    Args:
        trace: what happened.
        windows: of each rank, from when to when; by default all that was recorded, without what waits, and
            what never ended.
    """
    zero = min((start for start, _ in windows.values()), default=0) if windows else 0
    found: dict[int, dict[str, list[Piece]]] = {
        rank: defaultdict(list) for rank, (start, end) in (windows or {}).items() if start < end
    }
    met = _both_there(trace.spans)
    for span in trace.spans:
        if span.end_ps is None or (windows is not None and span.rank not in windows):
            continue
        start, end = met.get((span.track, span.name), span.start_ps), span.end_ps
        if windows is not None:
            start, end = max(start, windows[span.rank][0]), min(end, windows[span.rank][1])
        if start < end:
            track = MESSAGES if span.track.startswith(MESSAGES) else span.track
            name = str(span.args.get("pass") or span.name)
            lanes = found.setdefault(span.rank, defaultdict(list))
            lanes[track].append((start - zero, end - zero, name))
    until = max((end for own in found.values() for lane in own.values() for _, end, _ in lane), default=1)
    waits = {span.rank: span for span in trace.spans if span.never_ends and windows is None}
    until = max(until, *(span.start_ps for span in waits.values()), 0)
    if waits:
        until += max(10**6, until // 8)  # so long it is shown: a microsecond, or an eighth of the rest
    for rank, span in waits.items():
        lanes = found.setdefault(rank, defaultdict(list))
        lanes[span.track].append((span.start_ps, until, f"{NEVER_ENDED}: {span.name}"))
    pixel = max(1, until // RESOLUTION)

    alike: dict[Any, list[int]] = defaultdict(list)
    for rank in sorted(found):
        looks = tuple((track, _coarse(found[rank][track], pixel)) for track in sorted(found[rank]))
        alike[looks, waits[rank].name if rank in waits else None].append(rank)
    for rank, (start, end) in (windows or {}).items():
        lanes = found.get(rank, defaultdict(list))
        lanes[COMPUTE] += between(lanes[COMPUTE], start - zero, end - zero)
    rows = [
        RankRow(ranks, {track: sorted(own) for track, own in found[ranks[0]].items() if own})
        for ranks in alike.values()
    ]
    return Timeline(rows)


def last_iteration(trace: Trace, report: VirtualReport) -> Timeline:
    """Return the last iteration that all ranks have finished, or where there is none the whole run.

    Where ranks are folded only those are drawn of which it is recorded: those that had a thread until then.

    Raises:
        NoFigure: nothing took any time.
    """
    windows = {rank: ends_of(report, rank) for rank in range(report.num_ranks)}
    if report.folded:
        recorded = {span.rank for span in trace.spans if (span.end_ps or 0) > windows[span.rank][0]}
        windows = {rank: windows[rank] for rank in sorted(recorded)}
    drawn = timeline_of(trace, windows)
    if not drawn.rows:
        raise NoFigure("there is no timeline to draw, as nothing took any time")
    return replace(drawn, since="virtual time since the iteration began on the first rank")


def ends_of(report: VirtualReport, rank: int) -> Window:
    """Return when the last iteration began and ended on *rank*, in picoseconds."""
    lengths = [round(iteration[rank].seconds * _PS) for iteration in report.iterations]
    if not lengths:
        return 0, round(report.seconds * _PS)
    return sum(lengths[:-1]), sum(lengths)


def timeline_title(script: str, report: VirtualReport) -> str:
    """Return what a timeline of *report* shows, in words."""
    where = f"{script} on {counted(report.num_ranks, 'rank')} of {report.network}"
    if not report.iterations:
        return where
    spent = report.iterations[-1][0]
    title = f"{where}: iteration {len(report.iterations)}, {seconds(spent.seconds)}"
    if not report.on_gpu:
        return f"{title}, of it {seconds(spent.exposed_seconds)} waiting for communication"
    busy = percent(spent.compute_seconds / spent.seconds) if spent.seconds else "0 %"
    return f"{title}, the compute stream busy for {busy}"


def spell_alike(ranks: Sequence[int]) -> str:
    """Return ranks that are alike in words: ``ranks 0–7 alike``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    spelled = spans(ranks)
    shown = ", ".join(spelled[:3]) + (", …" if len(spelled) > 3 else "")
    return f"ranks {shown} alike ({len(ranks)})" if len(spelled) > 1 else f"ranks {shown} alike"


def merged(pieces: Iterable[Piece], track: str, gap: int = 0) -> list[Piece]:
    """Return *pieces* in order, as one those no further apart than *gap* that are of one kind or no longer.

    Of different kinds the longer gives its name; without a *gap* those are one that touch, of one name.
    """
    found: list[Piece] = []
    for start, end, name in sorted(pieces):
        if found:
            first, last, named = found[-1]
            alike = kind_of(track, named) == kind_of(track, name) and (gap or named == name)
            if start - last <= gap and (alike or max(last - first, end - start) <= gap):
                found[-1] = first, max(end, last), named if last - first >= end - start else name
                continue
        found.append((start, end, name))
    return found


def between(busy: Iterable[Piece], start: int, end: int) -> list[Piece]:
    """Return what of the time from *start* to *end* is in none of *busy*: waiting."""
    edges = [start, *chain(*_coarse(busy, 1)), end]
    return [
        (idle, until, WAITING) for idle, until in zip(edges[::2], edges[1::2], strict=True) if idle < until
    ]


def _both_there(spans: Iterable[Span]) -> dict[tuple[str, str], int]:
    """Return when both ends of each message from one rank to another had come to it; until then one waits."""
    met: dict[tuple[str, str], int] = {}
    for span in spans:
        if span.track.startswith(MESSAGES):
            key = span.track, span.name
            met[key] = max(met.get(key, 0), span.start_ps)
    return met


def _coarse(pieces: Iterable[Piece], pixel: int) -> tuple[Window, ...]:
    """Return *pieces* in whole pixels, those that touch as one."""
    found: list[Window] = []
    for start, end, _ in sorted(pieces):
        first, last = start // pixel, -(-end // pixel)
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)


def _order(track: str) -> tuple[int, str]:
    first = (HOST, COMPUTE)
    return first.index(track) if track in first else 3 if track.startswith(BETWEEN_RANKS) else 2, track
