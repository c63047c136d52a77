"""What happened when, on each rank, in a file that Perfetto and chrome://tracing open.

A trace is a list of spans and instants.  Each belongs to a rank and to a lane of it, such as
``compute`` or ``communication``; ranks are shown as processes and lanes as their threads, in one
order everywhere.  Real and simulated runs write the same format, so they can be laid side by side.

Times are written as exact decimals, and the bytes of a file depend only on what was recorded, not
on the order in which threads recorded it.

Source: Google, "Trace Event Format", events ``X``, ``i`` and ``M``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

SCHEMA = 1
"""Version of the metadata and of what ranks and lanes mean."""

_FIRST_LANES = ("compute", "communication")


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time on a lane of a rank, or with ``end_ps`` None an instant.

    Times are picoseconds since any zero that all spans of a trace share.
    """

    rank: int
    lane: str
    name: str
    start_ps: int
    end_ps: int | None
    args: Mapping[str, Any] = field(default_factory=dict)


class Trace:
    """Spans and instants of all ranks; may be pickled, and extended by another rank's.

    Attributes:
        spans: what has been recorded, in the order of recording.
        metadata: what a reader should know, such as the model and the network; JSON values.
    """

    def __init__(self, metadata: Mapping[str, Any] | None = None) -> None:
        self.spans: list[Span] = []
        self.metadata = dict(metadata or {})

    def span(self, rank: int, lane: str, name: str, start_ps: int, end_ps: int, **args: Any) -> None:
        """Record that *name* ran from *start_ps* to *end_ps* (picoseconds).

        *args* are shown when the span is selected.

        Raises:
            ValueError: the span ends before it begins.
        """
        if end_ps < start_ps:
            raise ValueError(f"span {name!r} of rank {rank} ends at {end_ps} ps, but begins at {start_ps} ps")
        self.spans.append(Span(rank, lane, name, start_ps, end_ps, args))

    def instant(self, rank: int, lane: str, name: str, time_ps: int, **args: Any) -> None:
        """Record that *name* happened at *time_ps* (picoseconds)."""
        self.spans.append(Span(rank, lane, name, time_ps, None, args))

    def extend(self, spans: Iterable[Span]) -> None:
        """Add the spans of another trace, whose times have the same zero."""
        self.spans.extend(spans)

    def to_json(self) -> str:
        """Return the trace in Chrome's format, one event on a line, times in microseconds."""
        tids = {lane: tid for tid, lane in enumerate(sorted({s.lane for s in self.spans}, key=_lane_order))}
        events = []
        for rank in sorted({span.rank for span in self.spans}):
            events.append(_name("process_name", {"pid": rank}, {"name": f"rank {rank}"}))
            events.append(_name("process_sort_index", {"pid": rank}, {"sort_index": rank}))
        for rank, tid, lane in sorted({(span.rank, tids[span.lane], span.lane) for span in self.spans}):
            events.append(_name("thread_name", {"pid": rank, "tid": tid}, {"name": lane}))
            events.append(_name("thread_sort_index", {"pid": rank, "tid": tid}, {"sort_index": tid}))
        events.extend(_event(span, tids[span.lane]) for span in sorted(self.spans, key=_order))
        about = _dump({"schema": SCHEMA, **self.metadata})
        body = ",\n".join(events)
        return f'{{"displayTimeUnit":"ns","otherData":{about},"traceEvents":[\n{body}\n]}}\n'

    def save(self, path: str | PathLike[str]) -> None:
        """Write `to_json` to *path*.

        Raises:
            OSError: the file cannot be written.
        """
        Path(path).write_bytes(self.to_json().encode())


def _event(span: Span, tid: int) -> str:
    kind = '"ph":"i","s":"t"' if span.end_ps is None else '"ph":"X"'
    duration = "" if span.end_ps is None else f'"dur":{_microseconds(span.end_ps - span.start_ps)},'
    return (
        f'{{"name":{_dump(span.name)},"cat":{_dump(span.lane)},{kind},"ts":{_microseconds(span.start_ps)},'
        f'{duration}"pid":{span.rank},"tid":{tid},"args":{_dump(span.args)}}}'
    )


def _name(name: str, where: Mapping[str, int], args: Mapping[str, Any]) -> str:
    return _dump({"name": name, "ph": "M", **where, "args": args})


def _order(span: Span) -> tuple[Any, ...]:
    """Sort by place, then time, the longer span first, as viewers nest them."""
    end_ps = span.start_ps if span.end_ps is None else span.end_ps
    return span.rank, _lane_order(span.lane), span.start_ps, -end_ps, span.name, _dump(span.args)


def _lane_order(lane: str) -> tuple[int, str]:
    return (_FIRST_LANES.index(lane) if lane in _FIRST_LANES else len(_FIRST_LANES), lane)


def _microseconds(time_ps: int) -> str:
    """Return picoseconds as an exact decimal number of microseconds."""
    whole, rest = divmod(abs(time_ps), 10**6)
    return f"{'-' if time_ps < 0 else ''}{whole}.{rest:06d}"


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    """Return what JSON does not know as something it does: mappings, NumPy's numbers, text."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.item() if isinstance(value, np.generic) else str(value)
