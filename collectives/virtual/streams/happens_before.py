"""Happens-before of what a rank issues: a vector clock for each stream, and one for the host.

What is issued on a stream comes after all that was issued there before, after what the host had waited for,
and after the events for which the stream waits.  Nothing else orders two streams, whatever times a run gives
them: what no wait orders may come either way on another day.

Source: Flanagan and Freund, "FastTrack: efficient and precise dynamic race detection", PLDI 2009 (an access
is known by its stream and its epoch: that stream's own count, which rises with each event recorded).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from collectives.virtual.streams.score import Call, HostWait, Item, Record, StreamWait

HOST = -1
"""The host among the streams."""

Clock = dict[int, int]
"""Of each stream, up to which of its counts all is done."""

_MANY = 4096
"""Events of which the clocks are kept before it is asked which can still be waited for."""


class HappensBefore:
    """The order of what one rank has issued.

    Attributes:
        calls: stream and clock of each call since this was last emptied.
    """

    def __init__(self, live_events: AbstractSet[int]) -> None:
        self.calls: list[tuple[int, Clock]] = []
        self._live_events = live_events
        self._clocks: dict[int, Clock] = {HOST: {}}
        self._events: dict[int, Clock] = {}
        self._num_host_waits = 0
        self._seen_of_host: dict[int, int] = {}

    def clock(self, stream: int) -> Clock:
        """Return the clock of what is issued on *stream* now; its own count is that of the operation."""
        clock = self._clocks.get(stream)
        if clock is None:
            clock = self._clocks[stream] = {stream: 1}
        if self._seen_of_host.get(stream) != self._num_host_waits:
            self._seen_of_host[stream] = self._num_host_waits
            join(clock, self._clocks[HOST])
        return clock

    @property
    def host(self) -> Clock:
        """The clock of the host."""
        return self._clocks[HOST]

    def note(self, item: Item) -> None:
        """Follow what is issued."""
        if isinstance(item, Record):
            clock = self.clock(item.stream)
            self._keep(item.event, dict(clock))
            clock[item.stream] += 1
        elif isinstance(item, StreamWait):
            join(self.clock(item.stream), self._events.get(item.event, {}))
        elif isinstance(item, HostWait):
            join(self.host, self._events.get(item.event, {}))
            self._num_host_waits += 1
        elif isinstance(item, Call):
            self.calls.append((item.stream, dict(self.clock(item.stream))))

    def settle(self, stream: int) -> None:
        """Take what was issued on *stream*, and what that has waited for, to be done now."""
        clock = self.clock(stream)
        join(self.host, clock)
        clock[stream] += 1
        self._num_host_waits += 1

    def _keep(self, event: int, clock: Clock) -> None:
        if len(self._events) > _MANY:
            self._events = {own: kept for own, kept in self._events.items() if own in self._live_events}
        self._events[event] = clock


def join(clock: Clock, other: Clock) -> None:
    """Let *clock* know what *other* knows."""
    for stream, count in other.items():
        if clock.get(stream, 0) < count:
            clock[stream] = count
