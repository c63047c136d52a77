"""GPU of a rank thread: what the thread issues goes into its score, and players play it in virtual time.

The thread goes on without waiting for virtual time.  It is held up only where it reads a clock whose time is
not known yet, where a mark is to be reached (so no thread runs an iteration ahead of the engine), and at its
end.  The engine never passes the host's time of a thread that can still write, but where a thread waits for
another's data; what it writes too late begins when the engine is there, and a notice says so.

    gpu           one for each rank thread (open first)
    score         what the host issues, in order
    stretch       what it issues on end, gone through once for all players
    player        its times, for one or several ranks
    players       those of one score, which part where a call ends at different times
    played        what is known afterwards
    stream_api    streams and events as torch has them
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

import simpy

from collectives.virtual.streams.account import Played
from collectives.virtual.streams.player import Player
from collectives.virtual.streams.players import Players, first_host
from collectives.virtual.streams.score import (
    DEFAULT_STREAM,
    Call,
    GroupCall,
    HostWait,
    HostWork,
    Item,
    Launch,
    Mark,
    Pace,
    Record,
    Score,
    StreamWait,
)
from collectives.virtual.streams.spans import Spans
from collectives.virtual.streams.stream_api import DeviceEvent, DeviceStream
from sim.cluster import RankThread
from sim.hardware import Device, Issued

W = TypeVar("W")
_current = threading.local()

_QUERY_PS = 10**6
"""The host's time for a query, where launches take none."""
BETWEEN = "between operations"
"""Name of the host's work for boundaries in Python, and for enqueuing calls."""
_PATIENCE = 10_000
"""How often a host asks for one event in a row before it is taken to wait for it."""


class Gpu:
    """The GPU of one rank thread; the time of its host is a `collectives.execution.clock.Clock`.

    Attributes:
        rank_thread: the rank.
        device: what it computes on.
        score: what the thread has issued.
        players: of the score.
        default: the default stream, on which a model computes.
        current: the stream on which the thread issues now.
        live_events: numbers of events that can still be waited for.
        in_use: the rank has made a tensor on a device, or made a device or another stream current.  Until
            then its tensors of the CPU stand for the device's.
        part: of the iteration that the thread is in, for the trace.
        at_host_wait: called when the host waits for the device.
        listeners: are told of what is issued.
        graph: captures what is issued now, if one does (`collectives.virtual.gpu.graphs`).
        replays: what is launched is part of a graph, which costs the host no launch.
    """

    must_be_charged = True

    def __init__(
        self,
        rank_thread: RankThread,
        device: Device,
        ranks: Sequence[int] | None = None,
        slowest: Fraction = Fraction(1),
    ) -> None:
        self.rank_thread = rank_thread
        self.device = device
        self.score = Score()
        self.live_events: set[int] = set()
        self.part = ""
        self.in_use = False
        self.at_host_wait: list[Callable[[], None]] = []
        self.listeners: list[Callable[[Item], None]] = []
        self.graph: Any = None
        self.replays = False
        self.default = self.current = DeviceStream(self, DEFAULT_STREAM)
        self._tracks: dict[int, str] = {DEFAULT_STREAM: "compute"}
        self._lanes: dict[Hashable, int] = {}
        self._num_streams = 1
        self._num_events = 0
        self._num_marks = 0
        self._times_asked = 0
        self._issued_when_asked = -1
        self._num_launches = self._num_boundaries = self._num_collectives = 0
        self._between_ps = 0
        self._deferred: Callable[[], None] | None = None

        cluster, rank = rank_thread.cluster, rank_thread.rank
        spans = None if cluster.trace is None else Spans(cluster.trace, rank, self._tracks)
        paces = {
            own: Pace(
                cluster.scenario.delays_ps.get(own, 0),
                device.host_overhead_ps,
                cluster.scenario.factors.get(own),
                Fraction(str(device.communication_share)),
                slowest,
            )
            for own in ((rank,) if ranks is None else ranks)
        }
        self.players = Players(cluster.env, self.score, paces, rank, spans)
        rank_thread.on_death.append(lambda: self.players.stop(rank))
        rank_thread.before_waiting = self.players.play

    def enter(self) -> None:
        """Make this the GPU of this thread."""
        _current.gpu = self

    @staticmethod
    def leave() -> None:
        """Leave this thread without a GPU."""
        _current.gpu = None

    def launch(
        self, name: str, duration_ps: int, kind: str = "kernel", stream: DeviceStream | None = None
    ) -> None:
        """Launch a kernel, or with *kind* ``copy`` a copy, on *stream*, or on the current one."""
        number = (stream or self.current).number
        self._num_launches += not self.replays
        self._issue(Launch(number, duration_ps, name, kind, self.part, self.replays))

    def defer(self, launch: Callable[[], None]) -> None:
        """Let *launch* be called before whatever is issued next, or the thread looks at a clock."""
        self._deferred = launch

    def cross(self, boundaries: int = 1) -> None:
        """Let the host take Python's time for so many boundaries, before whatever is issued next."""
        self._num_boundaries += boundaries
        self._between_ps += boundaries * self.device.host_boundary_ps

    def issue_deferred(self) -> None:
        """Issue now what has been deferred, and the host's time between operations."""
        duration_ps, self._between_ps = self._between_ps, 0
        if self._deferred is not None:
            launch, self._deferred = self._deferred, None
            launch()
        if duration_ps:
            self._append(HostWork(duration_ps, BETWEEN))

    def _issue(self, item: Item) -> None:
        if self._deferred is not None or self._between_ps:
            self.issue_deferred()
        self._append(item)

    def _append(self, item: Item) -> None:
        self.score.items.append(item)
        for listener in self.listeners:
            listener(item)

    def host_work(self, name: str, duration_ps: int) -> None:
        """Let the host itself work for so long."""
        self._issue(HostWork(duration_ps, name))

    def host_wait(self, what: DeviceEvent | DeviceStream, why: str) -> None:
        """Let the host wait for an event, or for all that has been issued on a stream."""
        number = self.record(what) if isinstance(what, DeviceStream) else what.number
        if number is not None:
            self._issue(HostWait(number, why))
            self._tell_of_wait()

    def synchronize(self, why: str = "the device") -> None:
        """Let the host wait for all that has been issued on any stream."""
        for number in range(self._num_streams):
            self._issue(Record(number, self._new_event()))
            self._issue(HostWait(self._num_events, why))
        self._tell_of_wait()

    def record(self, stream: DeviceStream) -> int:
        """Return the number of a new event: all is done that has been issued on *stream*."""
        event = self._new_event()
        self._issue(Record(stream.number, event))
        return event

    def stream_wait(self, stream: DeviceStream, event: int) -> None:
        """Let what comes on *stream* begin after *event*."""
        self._issue(StreamWait(stream.number, event))

    def new_stream(self, priority: int = 0) -> DeviceStream:
        """Return a stream on which nothing has been issued."""
        stream = DeviceStream(self, self._num_streams, priority)
        self._num_streams += 1
        return stream

    def stream_name(self, number: int) -> str:
        """Return in words which stream has that *number*."""
        if number == DEFAULT_STREAM:
            return "the default stream"
        track = self._tracks.get(number)
        if track is None:
            return f"stream {number}"
        group = track.removeprefix("communication ")
        return f"the stream of {track}" if group == track else f"the communication stream of {group}"

    def call(
        self,
        lane: Hashable,
        call: GroupCall,
        name: str,
        group: str,
        *,
        label: str = "",
        track: str = "",
        after_stream: bool = True,
        wire_ps: int = 0,
        is_message: bool = False,
    ) -> DeviceEvent:
        """Issue a collective or message on the communication stream of *lane*.

        Args:
            lane: of calls that go in order.
            call: the instance that all members share.
            name: of the collective.
            group: in words.
            label: under which the trace shows it; by default its name.
            track: on which; by default that of the group's communication.
            after_stream: it begins after what has been issued on the current stream; or else as soon as the
                host has issued it and its lane is free, as what is of the host's memory does.
            wire_ps: what links take for its bytes alone.
            is_message: from one rank to another; else a collective.

        Returns:
            The event of its end.
        """
        if lane not in self._lanes:
            self._lanes[lane] = self._num_streams
            self._tracks[self._num_streams] = track or f"communication {group}".rstrip()
            self._num_streams += 1
        stream = DeviceStream(self, self._lanes[lane])
        if after_stream:
            self.stream_wait(stream, self.record(self.current))
        if not self.replays:
            self._num_launches += 1
            self._num_collectives += 1
            self._between_ps += self.device.host_enqueue_ps
        self._issue(Call(stream.number, call, name, group, label, self.replays, wire_ps, is_message))
        return stream.record_event()

    def reissue(self, item: Launch | Record | StreamWait, stream: int, events: dict[int, int]) -> None:
        """Issue what a graph has captured on *stream*; *events* says which have come for those captured."""
        if isinstance(item, Launch):
            self._append(replace(item, stream=stream, replayed=True))
        elif isinstance(item, Record):
            events[item.event] = self._new_event()
            self._append(Record(stream, events[item.event]))
        else:
            self._append(StreamWait(stream, events.get(item.event, item.event)))

    def launch_graph(self) -> None:
        """Let the host take the time of one operation, for all that a graph launches."""
        self._num_launches += 1
        self.host_work("a graph", self.device.host_overhead_ps)

    def replayed_call(self, issue: Callable[[], W]) -> tuple[list[int], W]:
        """Let *issue* make a call of a graph; return the events that were recorded for it, and its work."""
        recorded = list[int]()

        def listen(item: Item) -> None:
            if isinstance(item, Record):
                recorded.append(item.event)

        self.listeners.append(listen)
        self.replays = True
        try:
            return recorded, issue()
        finally:
            self.replays = False
            self.listeners.remove(listen)

    def mark(self, name: str) -> int:
        """Mark this place of the score; return its number among `Played.marks`."""
        self.issue_deferred()
        issued = Issued(self._num_launches, self._num_boundaries, self._num_collectives)
        self._issue(Mark(name, frozenset(self.live_events), issued))
        self._num_marks += 1
        return self._num_marks - 1

    def now_ps(self) -> int:
        """Return the host's time, once that is known."""
        self.issue_deferred()
        self.players.play()
        self._until(lambda: self._own.is_dry)
        return self._own.host_ps

    def charge(self, work: str) -> None:
        """Launch a kernel that takes the time given for *work*; none if there is none."""
        duration_ps = self.rank_thread.charges.get(work, 0)
        if duration_ps:
            self.launch(work, duration_ps)

    def time_of(self, event: int) -> int:
        """Return when *event* happens, once that is known."""
        self.issue_deferred()
        self.players.play()
        self._until(lambda: self._own.time_of(event) is not None)
        time_ps = self._own.time_of(event)
        assert time_ps is not None
        return time_ps

    def known_time_of(self, event: int) -> int | None:
        """Return when *event* happens, or None if that is not known by now; does not hold up the thread."""
        return self._own.time_of(event)

    def has_happened(self, event: int) -> bool:
        """Return whether *event* has happened at the host's time; asking takes the time of a launch.

        So a host that asks again and again comes to the end of what it asks for.  One that has done nothing
        else for `_PATIENCE` times waits for it, and is in a deadlock if it never comes.
        """
        issued = len(self.score)
        self._times_asked = self._times_asked + 1 if issued == self._issued_when_asked else 1
        if self._times_asked > _PATIENCE:
            self._issue(HostWait(event, "what it asks for"))
            self._tell_of_wait()
        self.host_work("query", self.device.host_overhead_ps or _QUERY_PS)
        self._issued_when_asked = len(self.score)
        now_ps = self.now_ps()
        if self._own.time_of(event) is None:
            self._reach(now_ps)
        time_ps = self._own.time_of(event)
        has_happened = time_ps is not None and time_ps <= now_ps
        if has_happened:
            for listener in self.listeners:
                listener(HostWait(event, "what it asks for"))
        return has_happened

    def flush(self) -> None:
        """Let the engine come to the host's time: of several players, to that of the first to be here."""
        self.issue_deferred()
        self.players.play()
        env = self.rank_thread.cluster.env
        reached = first_host(self.players, env)
        self.rank_thread.wait(reached, self._describe, alone=True)

    def finish(self) -> Played:
        """Wait until all is done; return what is known of this rank, whose thread is then at its end."""
        self.synchronize()
        self.mark("end")
        self.score.closed = True
        self.players.play()
        self._until(lambda: self.players.are_through)
        played = self._own.played
        assert played.end_ps is not None
        self.rank_thread.stand_at(played.end_ps)
        return played

    @property
    def _own(self) -> Player:
        """The player of this rank; another one once players have parted."""
        return self.players.of(self.rank_thread.rank)

    def _tell_of_wait(self) -> None:
        for listener in self.at_host_wait:
            listener()

    def _new_event(self) -> int:
        self._num_events += 1
        return self._num_events

    def adopt(self, others: Sequence[Gpu]) -> None:
        """Let the ranks of *others* go on by what this thread writes; the others' threads write no more.

        Their scores have to be equal to this one, item by item, up to where they end, and nothing of that may
        have been dropped from this one (`Score.kept_from`).
        """
        self.players.adopt([other.players for other in others])
        for other in others:
            other.rank_thread.before_waiting = None

    def _until(self, is_known: Callable[[], bool]) -> None:
        """Hold up the thread until something is known."""
        if is_known():
            return
        known = simpy.Event(self.rank_thread.cluster.env)

        def look() -> bool:
            if not known.triggered and is_known():
                known.succeed()
            return known.triggered

        self.players.listen(look)
        self.rank_thread.wait(known, self._describe, alone=True)

    def _reach(self, time_ps: int) -> None:
        """Hold up the thread until the engine is at *time_ps*."""
        env = self.rank_thread.cluster.env
        if time_ps >= env.now:
            self.rank_thread.stand_at(time_ps)
            self.rank_thread.poll(env.event())

    def _describe(self) -> str:
        return self._own.describe()


def current_gpu() -> Gpu | None:
    """Return the GPU of the rank whose thread this is; None where there is none."""
    return getattr(_current, "gpu", None)
