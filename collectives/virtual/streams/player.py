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
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Protocol

import simpy

from collectives.virtual.streams.account import Account, Cause, Played, Raised, StreamQueue
from collectives.virtual.streams.flights import Flights, Settling
from collectives.virtual.streams.losses import Flown
from collectives.virtual.streams.score import (
    Call,
    HostWait,
    Launch,
    Mark,
    Pace,
    Record,
    Score,
    StreamWait,
)
from collectives.virtual.streams.spans import Spans
from collectives.virtual.streams.stretch import Stretch, host_ps_of

_HOST = -1
"""Stands for the host among streams that wait for an event."""


class Calls(Protocol):
    """Where a player's calls are begun; `collectives.virtual.streams.players`."""

    def begin(self, player: Player, position: int, call: Call) -> None:
        """Engine: the ranks of *player* come to *call*, which stands at *position* of the score, now."""

    def stretch(self, position: int, pace: Pace) -> Stretch:
        """Return what a host of *pace* issues on end from *position* of the score on."""


class Player:
    """One playing of a score.

    Attributes:
        host_ps: the host's time, after all that it has issued.
        position: of the next item that the host issues.
        account: what is known, and shown.
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
        self.account = Account(pace.start_ps, Played(), spans)
        self._env = env
        self._score = score
        self._pace = pace
        self._calls = calls
        self._host_raised: Raised = (pace.start_ps, None)
        self._host_awaits: int | None = None
        self._streams: dict[int, StreamQueue] = {}
        self._events: dict[int, Raised] = {}
        self._waiting: defaultdict[int, list[int]] = defaultdict(list)
        self._ready: deque[int] = deque()
        self._flights = Flights(env, self._begin, keeps_ended=bool(pace.share))
        self._settling = Settling(env, self.play)
        self._is_stopped = False

    @property
    def played(self) -> Played:
        """What is known."""
        return self.account.played

    def split(self, ranks: Sequence[int]) -> Player:
        """Return a player that goes on for *ranks* as this one does for the others."""
        other = Player(self._env, self._score, ranks, self._pace, self._calls)
        gone = set(ranks)
        self.ranks = tuple(rank for rank in self.ranks if rank not in gone)
        other.host_ps, other.position, other.account = self.host_ps, self.position, self.account.copy()
        other._host_raised, other._host_awaits = self._host_raised, self._host_awaits
        other._streams = {number: stream.copy() for number, stream in self._streams.items()}
        other._events = dict(self._events)
        other._waiting = defaultdict(list, {event: list(who) for event, who in self._waiting.items()})
        other._ready = deque(self._ready)
        other._settling = self._settling.copy(other.play)
        other._flights = self._flights.copy(other._begin)
        return other

    @property
    def place(self) -> tuple[int, ...]:
        """Where it is: what is soon found out of `future`."""
        return self.position, self.host_ps, self.account.until_ps

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
            and all(stream.item is None for stream in self._streams.values())
        ):
            tails = (stream.tail_ps for stream in self._streams.values())
            self.played.end_ps = max(self.host_ps, *tails, 0)
            if self.account.spans is not None:
                self.account.spans.close()

    def end(self, position: int, met_ps: int) -> None:
        """Engine: the ranks are through the call at *position*, now; at *met_ps* the last had come."""
        call, began_ps = self._flights.end(position)
        stream = self._streams[call.stream]
        stream.tail_ps = int(self._env.now)
        stream.cause = Cause(call.name, call.group, call.stream)
        self.account.call(
            call.stream,
            Flown(began_ps, met_ps, stream.tail_ps, call.wire_ps, call.is_message, stream.idle_ps),
        )
        stream.pop()
        if self.account.spans is not None:
            self.account.spans.call(call, began_ps, stream.tail_ps)
        self._ready.append(call.stream)

    def follow(self, score: Score, calls: Calls) -> None:
        """Go on by another *score*, which is equal up to where this one's ends."""
        self._score, self._calls = score, calls

    def join(self, others: Sequence[Player]) -> None:
        """Go on for the ranks of *others*, too, which will do what this one does and play no more."""
        self.ranks = tuple(sorted(rank for player in (self, *others) for rank in player.ranks))
        for other in others:
            self.account.spans = self.account.spans or other.account.spans
            other.stop()

    def future(self) -> tuple[object, ...]:
        """Return what two players of one score have to agree in at one instant to go on alike.

        Nothing to come begins, and nothing that has happened is heard of, before what is called *from_ps*:
        now, or where the host may issue more, its time if that is earlier.  So it makes no difference when,
        before that, a stream was done, an event happened or a call began.
        """
        from_ps = int(self._env.now)
        if self._host_awaits is None and not self._score.closed:
            from_ps = min(from_ps, self.host_ps)
        return (
            self.position,
            self.host_ps,
            self._host_awaits,
            self._is_stopped,
            self._pace,
            self.account.future(),
            self._host_raised,
            self._settling.future(from_ps),
            self._flights.future(from_ps),
            {number: stream.future(from_ps) for number, stream in self._streams.items()},
            {event: raised for event, raised in self._events.items() if raised[0] >= from_ps},
        )

    def describe(self) -> str:
        """Return what it waits for, in words."""
        return self._flights.describe() or "its streams"

    def _work_off(self) -> None:
        """Let streams, and the host, go on for which something has happened."""
        while True:
            while self._ready:
                number = self._ready.popleft()
                if number == _HOST:
                    self._issue()
                else:
                    self._advance(self._streams[number], number)
            if not self._settle_kernel():
                return

    def _issue(self) -> None:
        """Issue items as the host does, until it waits or the score ends."""
        score, spans = self._score, self.account.spans
        self._host_awaits = None
        while self.position < len(score):
            item, began_ps = score.items[self.position - score.dropped], self.host_ps
            if not isinstance(item, HostWait):
                self._issue_stretch(self._calls.stretch(self.position, self._pace))
                continue
            if not self._wait_on_host(item):
                return
            self.position += 1
            if spans is not None and self.host_ps > began_ps:
                spans.host(item, began_ps, self.host_ps)

    def _issue_stretch(self, stretch: Stretch) -> None:
        """Let the host issue a stretch on end, and streams do what they can of it."""
        began_ps, begin = self.host_ps, self.position
        self.host_ps += stretch.duration_ps
        self.position = stretch.end
        if self.account.spans is not None:
            self._show_host(self.account.spans, begin, began_ps)
        for number, issued in stretch.of_streams.items():
            stream = self._streams.get(number)
            if stream is None:
                stream = self._streams[number] = StreamQueue(self._pace.start_ps)
            stream.put(issued, began_ps, self._host_raised)
            if not stream.held:
                self._advance(stream, number)
        last = self._score.items[stretch.end - 1 - self._score.dropped]
        if isinstance(last, Mark):
            self._forget(last.live)

    def _show_host(self, spans: Spans, begin: int, host_ps: int) -> None:
        """Show what the host does from position *begin* on, at *host_ps*, up to where it is."""
        launch_ps, dropped = self._pace.scaled(self._pace.launch_ps), self._score.dropped
        for item in self._score.items[begin - dropped : self.position - dropped]:
            began_ps, host_ps = host_ps, host_ps + host_ps_of(item, launch_ps, self._pace)
            if host_ps > began_ps:
                spans.host(item, began_ps, host_ps)

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
            for _, _, item, _ in stream.queue()
            if isinstance(item, StreamWait)
        }
        self._events = {
            event: raised for event, raised in self._events.items() if event in live or event in awaited
        }

    def _advance(self, stream: StreamQueue, number: int) -> None:
        """Let *stream* do what can be known of its queue."""
        stream.held = False
        while (item := stream.item) is not None:
            begin_ps = max(stream.tail_ps, stream.issued_ps)
            if isinstance(item, Launch):
                if self._pace.share and item.kind == "kernel":
                    stream.held = True
                    self._settling.add(begin_ps, stream.position, number)
                    return
                self.account.run(stream, item, self._pace.took(item, is_disturbed=False))
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
                stream.idle_ps = begin_ps - stream.tail_ps
                self.account.late(self._flights.start(stream.position, item, begin_ps))
                return
            elif isinstance(item, Mark):
                self.account.mark(stream, item)
            stream.pop()

    def _happen(self, event: int, time_ps: int, cause: Cause | None) -> None:
        self._events[event] = time_ps, cause
        if event in self._waiting:
            self._ready.extend(self._waiting.pop(event))

    def _begin(self, position: int, call: Call) -> None:
        if not self._is_stopped:
            self._calls.begin(self, position, call)

    def _settle_kernel(self) -> bool:
        """Run the kernel that begins next, if it is known which calls are in flight then."""
        issues_no_more = self._host_awaits is not None or self._score.closed
        settled = self._settling.next(None if issues_no_more else self.host_ps, self._flights)
        if settled is None:
            return False

        begin_ps, number = settled
        stream = self._streams[number]
        item = stream.item
        assert isinstance(item, Launch)
        self.account.run(stream, item, self._pace.took(item, self._flights.were_any(begin_ps)))
        stream.pop()
        self._ready.append(number)
        return True
