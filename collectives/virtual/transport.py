"""Transport of rank threads: messages over a simulated network, in virtual time.

Real tensors are written when the receive completes in virtual time; without tensors only sizes
travel.  A handle is a SimPy event, so an execution is a SimPy process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial

import simpy

from collectives.errors import CollectiveTimeoutError
from collectives.execution.blame import Report
from collectives.execution.call import Call, Lane, RecentCalls
from collectives.execution.transport import Execution
from collectives.execution.work import Work
from collectives.program import Step
from collectives.program.chunking import Buffer
from collectives.timing.ranks.meeting_point import MeetingPoint
from collectives.timing.ranks.simulated_port import SimulatedPort
from collectives.virtual.progress import TOGETHER, CalledExecution, RankProgress
from collectives.virtual.time_outs import TimeOut
from sim.cluster import RankThread, Thing, Touch, current_rank_thread
from sim.errors import WaitTimeoutError
from sim.network.stream import Stream
from sim.scenario.step_overheads import StepOverheads
from sim.trace import Trace
from sim.units import SECOND


class _Lane:
    """Executions that run one after another, and this rank's side of the meeting point for them."""

    def __init__(self, meeting_point: MeetingPoint, rank: int) -> None:
        self.port = SimulatedPort(meeting_point, rank)
        self.stream = Stream(meeting_point.network.env)


class SimulatedTransport:
    """The transport of a rank thread.

    What is in one lane of its group runs one after another, by itself; or where the transport model says so,
    goes on when the rank calls (`collectives.virtual.progress`).

    Args:
        meeting_point: shared by all ranks of the group.
        rank: this rank within the group.
        rank_thread: the thread on which it runs.
        trace: gets a span for every collective, if given.
        progress: what the rank has in flight in all its groups; needed where it goes on when the rank calls.
        timeout: of a wait, in virtual seconds; None: for ever, as a deadlock is found at once.
        time_out: of the group, which its ranks share: how late a rank may come to a call.
        kernels: collectives of which one kernel, launched once, carries out all steps.
    """

    def __init__(
        self,
        meeting_point: MeetingPoint,
        rank: int,
        rank_thread: RankThread,
        trace: Trace | None = None,
        progress: RankProgress | None = None,
        timeout: float | None = None,
        time_out: TimeOut | None = None,
        kernels: Collection[str] = (),
    ) -> None:
        self.meeting_point = meeting_point
        self.time_out = time_out
        self._kernels = kernels
        self.rank = rank
        self.world_size = len(meeting_point.hosts)
        self.clock = rank_thread
        self.trace = trace
        self.recent = RecentCalls()
        self.lanes: dict[Lane, _Lane] = {}
        self.timeout = timeout
        self.progress: RankProgress | None = None
        if meeting_point.transport_model.progress == "calls":
            self.progress = progress or RankProgress(rank_thread)
        self._ports: dict[int, SimulatedPort] = {}
        self._tracks: set[str] = set()  # those on which something is shown now
        self.turn = _MayBeOvertaken(rank_thread)
        self._choices = rank_thread.cluster.choices
        self._messages = messages_to(rank, meeting_point)
        rank_thread.on_death.append(partial(meeting_point.remove, rank))

    def post(self, step: Step, buffer: Buffer, fingerprint: int) -> simpy.Event:
        """Start all operations of *step*; the event fires when it is complete."""
        return self._ports[fingerprint].post(step, buffer, fingerprint)

    def drain(self, fingerprint: int) -> simpy.Event | None:
        """Return an event that fires when peers have taken all that was sent; None if they have."""
        return self._ports[fingerprint].drain(fingerprint)

    def port(self, fingerprint: int) -> SimulatedPort:
        """Return this rank's side of the meeting point for the execution under *fingerprint*."""
        return self._ports[fingerprint]

    def start(self, execution: Execution, call: Call) -> Work:
        """Start *execution* at the rank's local time, after those started before it in its lane."""
        self.clock.check_thread()
        self.recent.append(call)
        self.meeting_point.reports[self.rank] = Report(call, "posted", tuple(self.recent))
        if self.time_out is not None:
            self.time_out.come(self.rank, self.clock.now_ps(), call)
        if self._choices is not None:
            for thing in things_of(call, self.meeting_point):
                self._choices.touch(thing, Touch.CONTRIBUTE)
        if self.progress is not None:
            called = CalledExecution(
                self.progress, self.meeting_point, self.rank, call, self._overheads(call)
            )
            self.progress.start(called, self._observe(execution, call, called.port))
            return SimulatedWork(self, call, called.port, called.done, called)

        if call.lane not in self.lanes:
            self.lanes[call.lane] = _Lane(self.meeting_point, self.rank)
        lane = self.lanes[call.lane]

        def carried_out() -> Execution:
            lane.port.begin(str(call), self._overheads(call))
            return self._observe(execution, call, lane.port)

        done = lane.stream.submit(carried_out, not_before_ps=self.clock.now_ps())
        return SimulatedWork(self, call, lane.port, done)

    def _overheads(self, call: Call) -> StepOverheads | None:
        """Return what ranks add to the time of *call*; jitter and launches are for collectives alone."""
        rank_overhead = self.meeting_point.rank_overhead
        if call.lane is not None:
            rank_overhead = replace(rank_overhead, jitter=None)
        if call.lane is not None or call.collective in self._kernels:
            rank_overhead = rank_overhead.in_one_kernel()
        return StepOverheads.of(rank_overhead, self.world_size, call.sequence)

    def _observe(self, execution: Execution, call: Call, port: SimulatedPort) -> Execution:
        env = self.meeting_point.network.env
        began_ps, fingerprint = int(env.now), call.fingerprint()
        self._ports[fingerprint] = port
        track = self._track(call)
        if call.collective in self._kernels and self.meeting_point.rank_overhead.step_ps:
            yield env.timeout(self.meeting_point.rank_overhead.step_ps)
        yield from execution
        del self._ports[fingerprint]
        self._tracks.discard(track)
        if self.trace is not None:
            self.trace.span(self.clock.rank, track, str(call), began_ps, int(env.now))

    def _track(self, call: Call) -> str:
        """Return a track on which nothing else is shown now."""
        name = "communication" if call.lane is None else "messages {} > {}".format(*call.lane)
        number, track = 1, name
        while track in self._tracks:
            number += 1
            track = f"{name} {number}"
        self._tracks.add(track)
        return track

    def wait_any(self, works: Sequence[SimulatedWork], timeout: float | None = None) -> None:
        """Wait in virtual time until one of *works*, which are of this transport, is complete.

        Raises:
            CollectiveTimeoutError: none is after *timeout* seconds, or those of the group.
        """
        if self._choices is not None:
            self._choices.touch(self._messages, Touch.AWAIT)
        with _noted(works[0].port, works[0].call, timeout or self.timeout) as timeout_ps:
            describe = lambda: f"any of {', '.join(str(work.call) for work in works)}"  # noqa: E731
            self.wait_until(works, describe, timeout_ps)
        self._look_for_messages()

    def wait_until(
        self, works: Sequence[SimulatedWork], describe: Callable[[], str], timeout_ps: int | None
    ) -> None:
        """Wait until one of *works* is complete.

        Raises:
            WaitTimeoutError: none is within *timeout_ps*.
        """
        if self.progress is not None:
            executions = [work.execution for work in works if work.execution is not None]
            self.progress.wait(executions, describe, timeout_ps)
            return
        ends = [work.done for work in works]
        any_done = ends[0] if len(ends) == 1 else self.clock.cluster.env.any_of(ends)
        self.clock.wait(any_done, describe, timeout_ps)

    def poll(self) -> None:
        """Advance what goes on when the rank calls; nothing else needs it."""
        if self.progress is not None:
            self.progress.poll()
        self._look_for_messages()

    def first_source(self, sources: Sequence[int]) -> int:
        """Return which of *sources* a receive from any source gets, whose messages came at one time."""
        if self._choices is None or len(sources) == 1:
            return sources[0]
        return self._choices.first("source", sources, self.clock.now_ps())

    def _look_for_messages(self) -> None:
        if self._choices is not None:
            self._choices.touch(self._messages, Touch.READ)


class _MayBeOvertaken(AbstractContextManager[None]):
    """Where a thread numbers a call: an order may let another thread of its rank do so before."""

    def __init__(self, rank_thread: RankThread) -> None:
        self._rank_thread = rank_thread

    def __enter__(self) -> None:
        if self._rank_thread.others is not None:
            self._rank_thread.others.may_call()

    def __exit__(self, *raised: object) -> None:
        """Do nothing: a thread keeps its turn until it waits."""


class SimulatedWork:
    """A collective in flight in virtual time; a `collectives.execution.work.Work`.

    One that goes on by itself is `collectives.execution.work.Interrupting`, too.

    Args:
        transport: of the rank.
        call: what it is.
        port: the rank's side of the meeting point for it.
        done: fires when the result is in place.
        execution: what goes on when the rank calls; None: it goes on by itself.
    """

    def __init__(
        self,
        transport: SimulatedTransport,
        call: Call,
        port: SimulatedPort,
        done: simpy.Event,
        execution: CalledExecution | None = None,
    ) -> None:
        self.call, self.port, self.done, self.execution = call, port, done, execution
        self._transport = transport
        self._describe = partial(describe, call, port)
        self._completed_ps: int | None = None
        if execution is None:
            assert done.callbacks is not None
            done.callbacks.append(self._note)
            self.interrupt = partial(transport.clock.interrupt, done)

    def _note(self, done: simpy.Event) -> None:
        if done.ok:
            self._completed_ps = int(done.env.now)

    @property
    def completed_ps(self) -> int | None:
        """When the result was in place; None as long as it is not."""
        return self._completed_ps if self.execution is None else self.execution.completed_ps

    def wait(self, timeout: float | None = None) -> None:
        """Wait in virtual time.

        Raises:
            CollectiveTimeoutError: the result is not in place after *timeout* seconds, or those of the group.
        """
        transport = self._transport
        with _noted(self.port, self.call, timeout or transport.timeout) as timeout_ps:
            since_ps = transport.clock.now_ps()
            transport.wait_until([self], self._describe, timeout_ps)
        if transport.time_out is not None:
            transport.time_out.waited(self.port.rank, since_ps, self.call)

    def is_completed(self) -> bool:
        """Advance what can be advanced; return whether the result is in place at this rank's local time."""
        clock, progress = self._transport.clock, self._transport.progress
        if progress is not None:
            progress.poll(observing=True)
        is_done = clock.poll(self.done) if self.execution is None else self.execution.is_over
        _look_at(self.call, self.port)
        if not is_done:
            clock.look_again(self.done, self._describe)
        return is_done


def things_of(call: Call, meeting_point: MeetingPoint) -> tuple[Thing, ...]:
    """Return what ranks share in *call*; first what tells whether it is complete."""
    name, key = str(call.at(meeting_point.hosts)), (meeting_point.key, call)
    if call.lane is not None:
        return Thing(name, key, contributions=2), messages_to(call.lane[1], meeting_point)
    return (Thing(name, key, len(meeting_point.hosts) if call.collective in TOGETHER else 1),)


def messages_to(rank: int, meeting_point: MeetingPoint) -> Thing:
    """Return what ranks share that send to *rank* of a group, where a receive names no source."""
    return Thing(f"the messages to rank {meeting_point.hosts[rank]}", (meeting_point.key, rank))


def _look_at(call: Call, port: SimulatedPort) -> None:
    """Note that the rank that has the turn sees whether *call* is complete."""
    rank_thread = current_rank_thread()
    if rank_thread is not None and rank_thread.cluster.choices is not None:
        rank_thread.cluster.choices.touch(things_of(call, port.meeting_point)[0], Touch.READ)


@contextmanager
def _noted(port: SimulatedPort, call: Call, timeout: float | None) -> Iterator[int | None]:
    """Note that this rank waits for *call* while the body waits for so many picoseconds, None for ever."""
    waiting = port.meeting_point.waiting
    waiting[port.rank] = call
    try:
        yield None if timeout is None else round(timeout * SECOND)
    except WaitTimeoutError as error:
        assert timeout is not None
        raise CollectiveTimeoutError(
            f"caught collective operation timeout: Timed out waiting {round(timeout * 1000)}ms of virtual "
            f"time for {describe(call, port)}"
        ) from error
    finally:
        if waiting.get(port.rank) is call:  # another thread of the rank may wait here since
            del waiting[port.rank]


def describe(call: Call, port: SimulatedPort) -> str:
    """Return what *call* waits for, in words."""
    group = port.meeting_point.group
    numbered = f", {group}, numbered from 0" if group else ""
    return f"{call}{numbered}: {port.doing()}"
