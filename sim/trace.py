"""Trace of a run: what happened when on each rank, in a file that Perfetto and chrome://tracing open.

A trace is a list of spans and instants.  Each belongs to a rank and to a track of it, such as
``compute`` or ``communication``; ranks are shown as processes and tracks as their threads, in one
order everywhere.  Real and simulated runs write the same format, so they can be laid side by side.

Times are written as exact decimals, and the bytes of a file depend only on what was recorded, not
on the order in which threads recorded it.

Counters, such as how full a link is, belong to a group, which is shown as a process of its own after the
ranks.  Arrows lead from a span of one rank to one of another.

Source: Google, "Trace Event Format", events ``X``, ``B``, ``i``, ``C``, ``s``, ``f`` and ``M``.
"""

from __future__ import annotations

import errno
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

SCHEMA = 1
"""Version of the metadata and of what ranks and tracks mean."""

_FIRST_TRACKS = ("compute", "communication", "steps", "send", "receive")
_FIRST_GROUP = 1 << 30  # the process number of the first group of counters, beyond those of ranks


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time on a track of a rank; with ``end_ps`` None an instant, or what *never_ends*.

    Times are picoseconds since any zero that all spans of a trace share.
    """

    rank: int
    track: str
    name: str
    start_ps: int
    end_ps: int | None
    args: Mapping[str, Any] = field(default_factory=dict)
    never_ends: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """A value from *time_ps* on, until the next one of that name; *millionths* of one *unit*."""

    group: str
    name: str
    time_ps: int
    unit: str
    millionths: int


@dataclass(frozen=True, slots=True)
class Arrow:
    """Leads from the span that begins at *time_ps* on one rank and track to that on another."""

    number: int
    tail: tuple[int, str]
    head: tuple[int, str]
    time_ps: int


class Trace:
    """Spans and instants of all ranks; may be pickled, and extended by another rank's.

    Attributes:
        spans: what has been recorded, in the order of recording.
        counts: values of counters.
        arrows: between spans.
        metadata: what a reader should know, such as the model and the network; JSON values.
    """

    def __init__(self, metadata: Mapping[str, Any] | None = None) -> None:
        self.spans: list[Span] = []
        self.counts: list[Count] = []
        self.arrows: list[Arrow] = []
        self.metadata = dict(metadata or {})

    def span(self, rank: int, track: str, name: str, start_ps: int, end_ps: int, **args: Any) -> None:
        """Record that *name* ran from *start_ps* to *end_ps* (picoseconds).

        *args* are shown when the span is selected.

        Raises:
            ValueError: the span ends before it begins.
        """
        if end_ps < start_ps:
            raise ValueError(f"span {name!r} of rank {rank} ends at {end_ps} ps, but begins at {start_ps} ps")
        self.spans.append(Span(rank, track, name, start_ps, end_ps, args))

    def instant(self, rank: int, track: str, name: str, time_ps: int, **args: Any) -> None:
        """Record that *name* happened at *time_ps* (picoseconds)."""
        self.spans.append(Span(rank, track, name, time_ps, None, args))

    def unfinished(self, rank: int, track: str, name: str, start_ps: int) -> None:
        """Record that *name* began at *start_ps* (picoseconds) and has not ended with the run."""
        self.spans.append(Span(rank, track, name, start_ps, None, never_ends=True))

    def counter(self, group: str, name: str, time_ps: int, unit: str, millionths: int) -> None:
        """Record that counter *name* of *group* has so many millionths of a *unit* from *time_ps* on."""
        self.counts.append(Count(group, name, time_ps, unit, millionths))

    def arrow(self, number: int, tail: tuple[int, str], head: tuple[int, str], time_ps: int) -> None:
        """Record an arrow between the spans that begin at *time_ps* on two ranks' tracks.

        *number* tells it apart from all others; there must be such spans.
        """
        self.arrows.append(Arrow(number, tail, head, time_ps))

    def extend(self, spans: Iterable[Span]) -> None:
        """Add the spans of another trace, whose times have the same zero."""
        self.spans.extend(spans)

    def to_json(self) -> str:
        """Return the trace in Chrome's format, one event on a line, times in microseconds."""
        tids = {
            track: tid for tid, track in enumerate(sorted({s.track for s in self.spans}, key=_track_order))
        }
        events = []

        for rank in sorted({span.rank for span in self.spans}):
            events.append(_name("process_name", {"pid": rank}, {"name": f"rank {rank}"}))
            events.append(_name("process_sort_index", {"pid": rank}, {"sort_index": rank}))
        for rank, tid, track in sorted({(span.rank, tids[span.track], span.track) for span in self.spans}):
            events.append(_name("thread_name", {"pid": rank, "tid": tid}, {"name": track}))
            events.append(_name("thread_sort_index", {"pid": rank, "tid": tid}, {"sort_index": tid}))

        groups = {group: _FIRST_GROUP + n for n, group in enumerate(sorted({c.group for c in self.counts}))}
        for group, pid in groups.items():
            events.append(_name("process_name", {"pid": pid}, {"name": group}))
            events.append(_name("process_sort_index", {"pid": pid}, {"sort_index": pid}))

        spans = [(span, tids[span.track], _dump(span.args)) for span in self.spans]
        events.extend(_event(*span) for span in sorted(spans, key=_order))
        for arrow in sorted(self.arrows, key=lambda arrow: arrow.number):
            events.append(_arrow_end(arrow, '"ph":"s"', arrow.tail, tids))
            events.append(_arrow_end(arrow, '"ph":"f","bp":"e"', arrow.head, tids))
        counts = sorted(self.counts, key=lambda count: (count.group, _natural(count.name), count.time_ps))
        events.extend(_count(count, groups[count.group]) for count in counts)

        about = _dump({"schema": SCHEMA, **self.metadata})
        body = ",\n".join(events)
        return f'{{"displayTimeUnit":"ns","otherData":{about},"traceEvents":[\n{body}\n]}}\n'

    def save(self, path: str | PathLike[str]) -> None:
        """Write `to_json` to *path*, whole or not at all.

        Raises:
            OSError: the file cannot be written; what was there before stays.
        """
        path = Path(path)
        unknown = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}")  # nobody has put a link there
        partial = unknown if path.is_file() or not path.exists() else path
        try:
            partial.write_bytes(self.to_json().encode())
            if partial is not path:
                partial.replace(path)
        except OSError as error:
            if partial is not path:
                with suppress(OSError):
                    partial.unlink()
            raise OSError(error.errno or errno.EIO, error.strerror, str(path)) from error


def _event(span: Span, tid: int, args: str) -> str:
    kind = '"ph":"B"' if span.never_ends else '"ph":"i","s":"t"' if span.end_ps is None else '"ph":"X"'
    duration = "" if span.end_ps is None else f'"dur":{_microseconds(span.end_ps - span.start_ps)},'
    return (
        f'{{"name":{_dump(span.name)},"cat":{_dump(span.track)},{kind},"ts":{_microseconds(span.start_ps)},'
        f'{duration}"pid":{span.rank},"tid":{tid},"args":{args}}}'
    )


def _arrow_end(arrow: Arrow, kind: str, end: tuple[int, str], tids: Mapping[str, int]) -> str:
    return (
        f'{{"name":"message","cat":"message",{kind},"id":{arrow.number},"ts":{_microseconds(arrow.time_ps)},'
        f'"pid":{end[0]},"tid":{tids[end[1]]}}}'
    )


def _count(count: Count, pid: int) -> str:
    value = f"{{{_dump(count.unit)}:{_microseconds(count.millionths)}}}"  # six decimals, as times have
    when = _microseconds(count.time_ps)
    return f'{{"name":{_dump(count.name)},"ph":"C","ts":{when},"pid":{pid},"args":{value}}}'


def _name(name: str, where: Mapping[str, int], args: Mapping[str, Any]) -> str:
    return _dump({"name": name, "ph": "M", **where, "args": args})


def _order(entry: tuple[Span, int, str]) -> tuple[Any, ...]:
    """Sort by place, then time, the longer span first, as viewers nest them."""
    span, tid, args = entry
    end_ps = span.start_ps if span.end_ps is None else span.end_ps
    return span.rank, tid, span.start_ps, -end_ps, span.name, args


def _track_order(track: str) -> tuple[Any, ...]:
    kind = track.rstrip("0123456789 ")
    return (_FIRST_TRACKS.index(kind) if kind in _FIRST_TRACKS else len(_FIRST_TRACKS), _natural(track))


def _natural(name: str) -> tuple[Any, ...]:
    """Sort ``send 2`` before ``send 10``."""
    parts = re.split(r"([0-9]+)", name)
    return (*((part, int(number)) for part, number in zip(parts[::2], [*parts[1::2], -1], strict=True)), name)


def _microseconds(time_ps: int) -> str:
    """Return picoseconds as an exact decimal number of microseconds, or millionths as one of wholes."""
    whole, rest = divmod(abs(time_ps), 10**6)
    return f"{'-' if time_ps < 0 else ''}{whole}.{rest:06d}"


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    """Return what JSON does not know as something it does: mappings, NumPy's numbers, text."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.item() if isinstance(value, np.generic) else str(value)
