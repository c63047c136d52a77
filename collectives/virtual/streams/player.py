"""Player of a score: a host and its streams in virtual time, for one rank or for several that do the same.

The host takes its time for every launch and goes on; what it issues waits in the queue of its stream.  A
kernel begins when its stream has done all before it, the host has issued it, and the events that the stream
awaits have happened; it ends after its duration.  All of that is known at once, so it is computed without
the engine, as far ahead as the score goes.  Only calls need the engine: their streams go on when it says that
the rank is through.

Where communication takes a share of the device (its processors and its memory's bandwidth), a kernel that
begins while a call of its rank is in flight takes ``1 / (1 - share)`` as long.  That is settled when it
begins: one that begins at the instant at which a call ends is not slowed down, and one that a call joins
later keeps its duration.  Kernels on different streams run beside each other at full speed; priorities
change nothing.

When the default stream waits, that is put down to what came last: the host's launch, or the collective or
copy behind the event that the stream has awaited.  A launch that is late because the host itself has waited
for a collective is put down to that, up to the end of the wait.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush
from math import ceil
from typing import Protocol

import simpy

from collectives.virtual.streams.played import OTHER_STREAM, Cause, Played, PlayedMark
from collectives.virtual.streams.score import (
    DEFAULT_STREAM,
    Call,
    HostWait,
    HostWork,
    Item,
    Launch,
    Mark,
    Record,
    Score,
    StreamWait,
)
from collectives.virtual.streams.spans import Spans
from collectives.virtual.streams.timers import KERNELS, at

_HOST = -1
"""Stands for the host among streams that wait for an event."""

Raised = tuple[int, Cause | None]
"""A time, and what it is due to."""


class Calls(Protocol):
    """Where a player's calls are begun; `collectives.virtual.streams.players`."""

    def begin(self, player: Player, position: int, call: Call) -> None:
        """Engine: the ranks of *player* come to *call*, which stands at *position* of the score, now."""


@dataclass(frozen=True)
class Pace:
    """How fast a rank goes through its score.

    Attributes:
        start_ps: when its host begins.
        launch_ps: the host's time for a launch.
        slowness: by which the rank takes longer for all it does; None: by nothing.
        share: of the device that communication takes while it is in flight.
    """

    start_ps: int = 0
    launch_ps: int = 0
    slowness: Fraction | None = None
    share: Fraction = Fraction(0)

    def scaled(self, duration_ps: int) -> int:
        """Return how long the rank takes for what takes *duration_ps*."""
        return duration_ps if self.slowness is None else ceil(duration_ps * self.slowness)

    def disturbed(self, duration_ps: int) -> int:
        """Return how long a kernel takes that begins beside communication."""
        return ceil(duration_ps / (1 - self.share)) if self.share else duration_ps


@dataclass(slots=True)
class _Stream:
    """One stream: what is to come on it, and when it has done what was.

    Attributes:
        tail_ps: when it has done all that was begun, events awaited included.
        cause: what its tail is due to; None: to its own kernels.
        counted_ps: up to where its time is accounted for.
        queue: when the host has issued what is to come, the item with its position in the score, and what
            the host itself had waited for.
        held: whether its first item is in flight, awaits an event or is to be settled.
    """

    tail_ps: int
    cause: Cause | None = None
    counted_ps: int = 0
    queue: deque[tuple[int, int, Item, Raised]] = field(default_factory=deque)
    held: bool = False

    def state(self) -> tuple[object, ...]:
        """Return what two streams have to agree in to go on alike."""
        queue = [(issued_ps, position, raised) for issued_ps, position, _, raised in self.queue]
        return self.tail_ps, self.cause, self.counted_ps, queue, self.held

    def copy(self) -> _Stream:
        return _Stream(self.tail_ps, self.cause, self.counted_ps, deque(self.queue), self.held)


@dataclass(slots=True)
class _Flight:
    """A call from its beginning, which may be to come, to its end, if that is known."""

    call: Call
    stream: int
    began_ps: int
    is_begun: bool = False
    ended_ps: int | None = None

    def state(self) -> tuple[object, ...]:
        """Return what two calls have to agree in."""
        return self.stream, self.began_ps, self.is_begun, self.ended_ps


class Player:
    """One playing of a score.

    Args:
        env: the engine.
        score: that the thread writes.
        ranks: that do the same at the same times, in order.
        pace: of the ranks.
        calls: where calls are begun.
        spans: get what is shown of it, if anything.

    Attributes:
        host_ps: the host's time, after all that it has issued.
        position: of the next item that the host issues.
        played: what is known.
    """

    def __init__(
        self,
        env: simpy.Environment,
        score: Score,
        ranks: Sequence[int],
        pace: Pace,
        calls: Calls,
        spans: Spans | None = None,
    ) -> None:
        self.ranks = tuple(ranks)
        self.host_ps = pace.start_ps
        self.position = score.dropped
        self.played = Played()
        self.spans = spans
        self._env = env
        self._score = score
        self._pace = pace
        self._calls = calls
        self._host_raised: Raised = (pace.start_ps, None)
        self._host_awaits: int | None = None
        self._streams: dict[int, _Stream] = {}
        self._events: dict[int, Raised] = {}
        self._waiting: defaultdict[int, list[int]] = defaultdict(list)
        self._ready: deque[int] = deque()
        self._flights: dict[int, _Flight] = {}
        self._to_settle: list[tuple[int, int, int]] = []
        self._settled_ps = -1
        self._timer_ps: int | None = None
        self._is_stopped = False

    def split(self, ranks: Sequence[int]) -> Player:
        """Return a player that goes on for *ranks* as this one does for the others."""
        other = Player(self._env, self._score, ranks, self._pace, self._calls)
        self.ranks = tuple(rank for rank in self.ranks if rank not in set(ranks))
        other.host_ps, other.position, other.played = self.host_ps, self.position, self.played.copy()
        other._host_raised, other._host_awaits = self._host_raised, self._host_awaits
        other._streams = {number: stream.copy() for number, stream in self._streams.items()}
        other._events = dict(self._events)
        other._waiting = defaultdict(list, {event: list(who) for event, who in self._waiting.items()})
        other._ready = deque(self._ready)
        other._to_settle = list(self._to_settle)
        other._settled_ps = self._settled_ps
        for position, flight in self._flights.items():
            other._flights[position] = _Flight(
                flight.call, flight.stream, flight.began_ps, flight.is_begun, flight.ended_ps
            )
            if not flight.is_begun:
                other._begin_at(position, flight.began_ps)
        return other

    @property
    def is_dry(self) -> bool:
        """Whether the host has issued all that stands in the score."""
        return self._host_awaits is None and self.position == len(self._score)

    @property
    def is_through(self) -> bool:
        """Whether all is done that stands in a score to which nothing will be added."""
        return self._is_stopped or self.played.end_ps is not None

    def time_of(self, event: int) -> int | None:
        """Return when *event* happens; None as long as that is not known."""
        raised = self._events.get(event)
        return None if raised is None else raised[0]

    def stop(self) -> None:
        """Play no more: the ranks are dead."""
        self._is_stopped = True

    def play(self) -> None:
        """Play as far as can be known now."""
        if self._is_stopped:
            return
        if self._host_awaits is None:
            self._issue()
        self._work_off()
        if (
            self._score.closed
            and self.played.end_ps is None
            and self.is_dry
            and not any(stream.queue for stream in self._streams.values())
        ):
            tails = (stream.tail_ps for stream in self._streams.values())
            self.played.end_ps = max(self.host_ps, *tails, 0)
            if self.spans is not None:
                self.spans.close()

    def end(self, position: int) -> None:
        """Engine: the ranks are through the call at *position*, now."""
        flight = self._flights[position]
        flight.ended_ps = now = int(self._env.now)
        stream = self._streams[flight.stream]
        stream.tail_ps = now
        stream.cause = Cause(flight.call.name, flight.call.group)
        stream.queue.popleft()
        if not self._pace.share:
            del self._flights[position]
        if self.spans is not None:
            self.spans.call(flight.call, flight.began_ps, now)
        self._ready.append(flight.stream)

    def follow(self, score: Score, calls: Calls) -> None:
        """Go on by another *score*, which is equal up to where this one's ends."""
        self._score, self._calls = score, calls

    def is_like(self, other: Player) -> bool:
        """Return whether *other*, of the same score, stands where this one does and has got there alike."""
        return self._state() == other._state()

    def join(self, other: Player) -> None:
        """Go on for the ranks of *other*, too, which stands where this one does and plays no more."""
        self.ranks = tuple(sorted((*self.ranks, *other.ranks)))
        self.spans = self.spans or other.spans
        other.stop()

    def _state(self) -> tuple[object, ...]:
        return (
            self.position,
            self.host_ps,
            self._host_raised,
            self._host_awaits,
            {number: stream.state() for number, stream in self._streams.items()},
            {position: own.state() for position, own in self._flights.items()},
            self._events,
            self._to_settle,
            self._is_stopped,
            self._pace,
            self.played,
        )

    def describe(self) -> str:
        """Return what it waits for, in words."""
        waits = [
            str(flight.call.call)
            for flight in self._flights.values()
            if flight.is_begun and flight.ended_ps is None
        ]
        return ", ".join(waits) or "its streams"

    def _work_off(self) -> None:
        """Let streams, and the host, go on for which something has happened."""
        while True:
            while self._ready:
                number = self._ready.popleft()
                if number == _HOST:
                    self._issue()
                else:
                    self._advance(self._streams[number], number)
            if not self._to_settle or not self._settle_kernel():
                return

    def _issue(self) -> None:
        """Issue items as the host does, until it waits or the score ends."""
        score, pace = self._score, self._pace
        launch_ps = pace.scaled(pace.launch_ps)
        self._host_awaits = None
        while self.position < len(score):
            item = score[self.position]
            began_ps = self.host_ps
            if isinstance(item, Launch):
                self.host_ps += launch_ps
                self._put(item.stream, item)
            elif isinstance(item, Record | StreamWait):
                self._put(item.stream, item)
            elif isinstance(item, Call):
                self.host_ps += launch_ps
                self._put(item.stream, item)
            elif isinstance(item, HostWait):
                if not self._wait_on_host(item):
                    return
            elif isinstance(item, HostWork):
                self.host_ps += pace.scaled(item.duration_ps)
            else:
                self._put(DEFAULT_STREAM, item)
                self._forget(item.live)
            self.position += 1
            if self.spans is not None and self.host_ps > began_ps:
                self.spans.host(item, began_ps, self.host_ps)

    def _put(self, number: int, item: Item) -> None:
        stream = self._streams.get(number)
        if stream is None:
            stream = self._streams[number] = _Stream(self._pace.start_ps, counted_ps=self._pace.start_ps)
        stream.queue.append((self.host_ps, self.position, item, self._host_raised))
        if not stream.held:
            self._advance(stream, number)

    def _wait_on_host(self, item: HostWait) -> bool:
        """Let the host wait; return whether it is known until when."""
        raised = self._events.get(item.event)
        if raised is None:
            self._waiting[item.event].append(_HOST)
            self._host_awaits = item.event
            return False
        if raised[0] > self.host_ps:
            self.host_ps = raised[0]
            self._host_raised = raised
        return True

    def _forget(self, live: frozenset[int]) -> None:
        """Keep of the events that have happened only those in *live* and those that a stream is to await."""
        awaited = {
            item.event
            for stream in self._streams.values()
            for _, _, item, _ in stream.queue
            if isinstance(item, StreamWait)
        }
        self._events = {
            event: raised for event, raised in self._events.items() if event in live or event in awaited
        }

    def _advance(self, stream: _Stream, number: int) -> None:
        """Let *stream* do what can be known of its queue."""
        queue = stream.queue
        stream.held = False
        while queue:
            issued_ps, position, item, host_raised = queue[0]
            begin_ps = max(stream.tail_ps, issued_ps)
            if isinstance(item, Launch):
                if self._pace.share and item.kind == "kernel":
                    stream.held = True
                    heappush(self._to_settle, (begin_ps, position, number))
                    return
                self._run(stream, item, issued_ps, host_raised, self._pace.scaled(item.duration_ps))
            elif isinstance(item, StreamWait):
                raised = self._events.get(item.event)
                if raised is None:
                    stream.held = True
                    self._waiting[item.event].append(number)
                    return
                if raised[0] > stream.tail_ps:
                    stream.tail_ps, stream.cause = raised
            elif isinstance(item, Record):
                self._happen(item.event, begin_ps, stream.cause if begin_ps == stream.tail_ps else None)
            elif isinstance(item, Call):
                stream.held = True
                self._start(position, item, begin_ps)
                return
            elif isinstance(item, Mark):
                self._mark(stream, item, issued_ps, host_raised)
            queue.popleft()

    def _run(
        self, stream: _Stream, item: Launch, issued_ps: int, host_raised: Raised, duration_ps: int
    ) -> None:
        begin_ps = max(stream.tail_ps, issued_ps)
        end_ps = begin_ps + duration_ps
        is_copy = item.kind == "copy"
        if item.stream == DEFAULT_STREAM:
            self._count_gap(stream, issued_ps, host_raised)
            if is_copy:
                self.played.exposed[Cause(item.name)] += duration_ps
            else:
                self.played.busy_ps += duration_ps
            stream.cause = None
        elif is_copy:
            stream.cause = Cause(item.name)
        elif issued_ps > stream.tail_ps:
            stream.cause = None
        stream.tail_ps = stream.counted_ps = end_ps
        if self.spans is not None:
            self.spans.kernel(item, begin_ps, end_ps)

    def _count_gap(self, stream: _Stream, issued_ps: int, host_raised: Raised) -> None:
        """Account for the time in which the default stream has waited, until its next kernel or mark."""
        begin_ps = max(stream.tail_ps, issued_ps)
        gap_ps = begin_ps - stream.counted_ps
        if not gap_ps:
            return
        if issued_ps <= stream.tail_ps:
            self.played.exposed[stream.cause or OTHER_STREAM] += gap_ps
        else:
            waited_until_ps, cause = host_raised
            waited_ps = 0 if cause is None else max(0, min(waited_until_ps, begin_ps) - stream.counted_ps)
            if cause is not None and waited_ps:
                self.played.exposed[cause] += waited_ps
            self.played.host_idle_ps += gap_ps - waited_ps
        stream.counted_ps = begin_ps

    def _mark(self, stream: _Stream, item: Mark, issued_ps: int, host_raised: Raised) -> None:
        self._count_gap(stream, issued_ps, host_raised)
        played = self.played
        device_ps = max(stream.tail_ps, issued_ps)
        played.marks.append(
            PlayedMark(
                item.name, issued_ps, device_ps, played.busy_ps, played.host_idle_ps, dict(played.exposed)
            )
        )

    def _happen(self, event: int, time_ps: int, cause: Cause | None) -> None:
        self._events[event] = time_ps, cause
        if event in self._waiting:
            self._ready.extend(self._waiting.pop(event))

    def _start(self, position: int, call: Call, begin_ps: int) -> None:
        """Have the call at *position* begun at *begin_ps*, or now, if a thread has written it too late."""
        now = int(self._env.now)
        if begin_ps < now:
            self.played.num_late += 1
            self.played.late_ps = max(self.played.late_ps, now - begin_ps)
            begin_ps = now
        self._flights[position] = _Flight(call, call.stream, begin_ps)
        self._begin_at(position, begin_ps)

    def _begin_at(self, position: int, begin_ps: int) -> None:
        def begin() -> None:
            if not self._is_stopped:
                flight = self._flights[position]
                flight.is_begun = True
                self._calls.begin(self, position, flight.call)

        at(self._env, begin_ps, begin)

    def _settle_kernel(self) -> bool:
        """Run the kernel that begins next, if it is known which calls are in flight then."""
        begin_ps, _, number = self._to_settle[0]
        is_over = begin_ps <= self._settled_ps or begin_ps < self._env.now
        if self._host_awaits is None and not self._score.closed and self.host_ps <= begin_ps and not is_over:
            self._settle_at(begin_ps)  # comes only if the thread waits for others' data until then
            return False
        in_flight = [own for own in self._flights.values() if own.began_ps <= begin_ps]
        if not is_over and any(own.ended_ps is None for own in in_flight):
            self._settle_at(begin_ps)
            return False

        heappop(self._to_settle)
        stream = self._streams[number]
        issued_ps, _, item, host_raised = stream.queue.popleft()
        assert isinstance(item, Launch)
        duration_ps = self._pace.scaled(item.duration_ps)
        if any(own.ended_ps is None or own.ended_ps > begin_ps for own in in_flight):
            duration_ps = self._pace.disturbed(duration_ps)
        self._run(stream, item, issued_ps, host_raised, duration_ps)
        self._flights = {
            position: own
            for position, own in self._flights.items()
            if own.ended_ps is None or own.ended_ps > begin_ps
        }
        self._ready.append(number)
        return True

    def _settle_at(self, time_ps: int) -> None:
        """Come back at the end of the instant *time_ps*."""
        if self._timer_ps is not None and self._timer_ps <= time_ps:
            return
        self._timer_ps = time_ps

        def settle() -> None:
            if self._timer_ps == time_ps:
                self._timer_ps = None
            self._settled_ps = max(self._settled_ps, int(self._env.now))
            self.play()

        at(self._env, time_ps, settle, KERNELS)
