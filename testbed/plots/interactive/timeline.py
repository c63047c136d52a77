"""Timeline of ranks with zoom: a row for ranks that are alike, in it a lane for each of their tracks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.output.figure import COLOURS, INK
from testbed.plots.interactive.canvas import canvas
from testbed.plots.timeline_plot import unit_of

if TYPE_CHECKING:
    from sim import Trace

MOST_HEIGHT = 640
"""Pixels that a timeline is high at most; of more rows, the wheel moves through them."""
MOST_PIECES = 40_000
"""Pieces that a page holds; of more, those that follow each other closely are drawn as one, or short ones."""

_LANE, _BETWEEN, _MARGIN = 16, 8, 80  # pixels
_FIRST = ("host", "compute", "communication")
_PASSES = {"forward": COLOURS[5], "backward": COLOURS[0], "optimizer": COLOURS[2]}
_COMMUNICATION = COLOURS[1]
_HOST, _OTHER = "#8a8a8a", "#b5b5b5"
_COMPUTING = "compute"
_RESOLUTION = 2000  # parts of the whole time; ranks that agree to one of them are alike

Piece = tuple[int, int, str]
Lanes = Mapping[str, Sequence[Piece]]


@dataclass(frozen=True)
class RankRow:
    """Ranks that did the same at the same times, and what each of their tracks shows.

    Attributes:
        ranks: those that are alike.
        lanes: of each track, pieces (start, end, name) in picoseconds since the window began.
    """

    ranks: Sequence[int]
    lanes: Lanes

    @property
    def label(self) -> str:
        """The ranks, in words."""
        return spell_alike(self.ranks)


def spell_alike(ranks: Sequence[int]) -> str:
    """Return ranks that are alike in words: ``ranks 0–7 alike``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1][1:] = [rank]
        else:
            runs.append([rank])
    spelled = [str(run[0]) if len(run) == 1 else f"{run[0]}–{run[1]}" for run in runs]
    shown = ", ".join(spelled[:3]) + (", …" if len(spelled) > 3 else "")
    return f"ranks {shown} alike ({len(ranks)})" if len(runs) > 1 else f"ranks {shown} alike"


def rank_rows(trace: Trace, windows: Mapping[int, tuple[int, int]] | None = None) -> list[RankRow]:
    """Return the rows of a timeline.

    Args:
        trace: what happened.
        windows: of each rank, from when to when; by default all that was recorded.
    """
    pieces: dict[int, dict[str, list[Piece]]] = defaultdict(lambda: defaultdict(list))
    zero = min((start for start, _ in windows.values()), default=0) if windows else 0
    for span in trace.spans:
        if span.end_ps is None or span.end_ps == span.start_ps:
            continue
        start, end = span.start_ps, span.end_ps
        if windows is not None:
            if span.rank not in windows:
                continue
            start, end = max(start, windows[span.rank][0]), min(end, windows[span.rank][1])
        if start < end:
            name = str(span.args.get("pass") or span.name)
            pieces[span.rank][span.track].append((start - zero, end - zero, name))

    until = max((end for own in pieces.values() for lane in own.values() for _, end, _ in lane), default=1)
    pixel = max(1, until // _RESOLUTION)
    alike: dict[Any, list[int]] = defaultdict(list)
    for rank in sorted(pieces):
        looks = tuple((track, _coarse(pieces[rank][track], pixel)) for track in sorted(pieces[rank]))
        alike[looks].append(rank)
    return [
        RankRow(ranks, {track: sorted(own) for track, own in pieces[ranks[0]].items()})
        for ranks in alike.values()
    ]


def timeline(rows: Sequence[RankRow]) -> Any:
    """Return a plot of *rows*, moved with the mouse and zoomed with its tools; a piece tells what it is.

    Rows that do not fit are moved through with the wheel: a browser draws no picture of a thousand rows.
    """
    from bokeh.models import HoverTool, Range1d, WheelPanTool

    until = max((end for row in rows for lane in row.lanes.values() for _, end, _ in lane), default=1)
    scale, unit = unit_of(until)
    data: dict[str, list[Any]] = {
        name: [] for name in ("left", "right", "y", "colour", "name", "lane", "took")
    }
    ticks: dict[float, str] = {}
    top, gap = 0.0, _gap(rows, until)
    for row in rows:
        for track in sorted(row.lanes, key=_order):
            label = row.label if track == min(row.lanes, key=_order) else ""
            ticks[top] = f"{label}   {track}" if label else track
            for start, end, name in _merged(row.lanes[track], gap):
                data["left"].append(start * scale)
                data["right"].append(end * scale)
                data["y"].append(top)
                data["colour"].append(_colour(track, name))
                data["name"].append(name)
                data["lane"].append(f"{row.label}, {track}")
                data["took"].append(f"{(end - start) * scale:.4g} {unit}")
            top -= 1.0
        top -= _BETWEEN / _LANE
    height = max(160, int(-top * _LANE) + _MARGIN)
    shown = max(top, 1.0 - (MOST_HEIGHT - _MARGIN) / _LANE)
    drawn = canvas(
        min(height, MOST_HEIGHT),
        x_range=(0, until * scale),
        y_range=Range1d(start=shown, end=1.0, bounds=(top, 1.0)),
    )
    drawn.sizing_mode = "stretch_width"
    if shown > top:
        wheel = WheelPanTool(dimension="height")
        drawn.add_tools(wheel)
        drawn.toolbar.active_scroll = wheel
    bars = drawn.hbar(y="y", left="left", right="right", height=0.8, color="colour", source=data)
    drawn.add_tools(HoverTool(renderers=[bars], tooltips=[("", "@name"), ("", "@lane"), ("took", "@took")]))
    merged = f"; pieces closer than {gap * scale:.2g} {unit} are drawn as one" if gap else ""
    drawn.xaxis.axis_label = f"virtual time ({unit}){merged}"
    drawn.yaxis.ticker = list(ticks)
    drawn.yaxis.major_label_overrides = ticks
    drawn.yaxis.major_label_text_color = INK
    drawn.ygrid.grid_line_color = None
    return drawn


def _coarse(pieces: Iterable[Piece], pixel: int) -> tuple[tuple[int, int], ...]:
    """Return *pieces* in whole pixels, those that touch as one."""
    found: list[tuple[int, int]] = []
    for start, end, _ in sorted(pieces):
        first, last = start // pixel, end // pixel + 1
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)


def _gap(rows: Sequence[RankRow], until: int) -> int:
    """Return how close pieces follow each other that are drawn as one."""
    gap = 0
    lanes = [lane for row in rows for lane in row.lanes.values()]
    while gap < until and sum(len(_merged(lane, gap)) for lane in lanes) > MOST_PIECES:
        gap = max(2 * gap, until // 10_000, 1)
    return gap


def _merged(pieces: Sequence[Piece], gap: int) -> list[Piece]:
    """Return *pieces*, those on end as one that are no further apart than *gap* and of one kind or no longer.

    Of different kinds the longer gives its name.
    """
    if not gap:
        return list(pieces)
    found: list[Piece] = []
    for start, end, name in pieces:
        if found:
            first, last, named = found[-1]
            if start - last <= gap and (_kind(named) == _kind(name) or max(last - first, end - start) <= gap):
                found[-1] = first, max(end, last), named if last - first >= end - start else name
                continue
        found.append((start, end, name))
    return found


def _order(track: str) -> tuple[int, str]:
    return (_FIRST.index(track) if track in _FIRST else len(_FIRST), track)


def _colour(track: str, name: str) -> str:
    if track == "host":
        return _HOST
    if track.startswith(_COMPUTING):
        return _PASSES.get(_kind(name), _OTHER)
    return _COMMUNICATION


def _kind(name: str) -> str:
    return name.partition(" ")[0]
