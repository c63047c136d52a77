"""Spans of a player in a trace: the host, the compute stream, other streams, communication.

On the host's track, what follows at once under one name is one span.  Kernels of the first ranks are shown
one by one, with the part of the iteration that they belong to; those of other ranks by that part, so that a
trace of many ranks can still be opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from collectives.virtual.streams.score import DEFAULT_STREAM, Call, HostWait, Item, Launch
from sim.trace import Trace

HOST = "host"
_DETAILED_RANKS = 8
"""Ranks whose kernels are shown one by one."""


@dataclass
class Spans:
    """What is shown of one rank."""

    _trace: Trace
    _rank: int
    _tracks: Mapping[int, str]
    _latest: dict[str, tuple[str, int, int]] = field(default_factory=dict)

    def host(self, item: Item, began_ps: int, ended_ps: int) -> None:
        """Show what the host has done for *item*."""
        if isinstance(item, HostWait):
            self._extend(HOST, f"waits: {item.name}", began_ps, ended_ps)
        else:
            self._extend(HOST, "launches" if isinstance(item, Launch | Call) else "works", began_ps, ended_ps)

    def kernel(self, item: Launch, began_ps: int, ended_ps: int) -> None:
        """Show a kernel, or a copy; on the compute stream by the part of the iteration."""
        track = self._track(item.stream)
        if self._rank < _DETAILED_RANKS or item.kind != "kernel":
            args = {"pass": item.part} if item.part else {}
            self._trace.span(self._rank, track, item.name, began_ps, ended_ps, **args)
        else:
            self._extend(track, item.part or item.name, began_ps, ended_ps)

    def call(self, call: Call, began_ps: int, ended_ps: int) -> None:
        """Show a call."""
        self._trace.span(self._rank, self._track(call.stream), call.label or call.name, began_ps, ended_ps)

    def close(self) -> None:
        """Show what has not been shown yet."""
        for track in tuple(self._latest):
            self._show(track)

    def _track(self, stream: int) -> str:
        return self._tracks.get(stream, "compute" if stream == DEFAULT_STREAM else f"stream {stream}")

    def _extend(self, track: str, name: str, began_ps: int, ended_ps: int) -> None:
        latest = self._latest.get(track)
        if latest is not None and latest[0] == name and latest[2] == began_ps:
            self._latest[track] = name, latest[1], ended_ps
            return
        self._show(track)
        self._latest[track] = name, began_ps, ended_ps

    def _show(self, track: str) -> None:
        latest = self._latest.pop(track, None)
        if latest is not None and latest[2] > latest[1]:
            name, began_ps, ended_ps = latest
            self._trace.span(self._rank, track, name, began_ps, ended_ps)
