"""Transport of rank threads: messages over a simulated network, in virtual time.

Real tensors are written when the receive completes in virtual time; without tensors only sizes
travel.  A handle is a SimPy event, so an execution is a SimPy process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import simpy

from collectives.execution.blame import Report
from collectives.execution.call import Call, Lane, RecentCalls
from collectives.execution.transport import Execution
from collectives.program import Step
from collectives.program.chunking import Buffer
from collectives.simulation.engines.meeting_point import MeetingPoint
from collectives.simulation.engines.simulated_port import SimulatedPort
from sim.cluster import RankThread
from sim.network.stream import Stream
from sim.scenario.step_overheads import StepOverheads
from sim.trace import Trace


class _Lane:
    """Executions that run one after another, and this rank's side of the meeting point for them."""

    def __init__(self, meeting_point: MeetingPoint, rank: int) -> None:
        self.port = SimulatedPort(meeting_point, rank)
        self.stream = Stream(meeting_point.network.env)


class SimulatedTransport:
    """The transport of a rank thread: what is in one lane of its group runs one after another.

    Args:
        meeting_point: shared by all ranks of the group.
        rank: this rank within the group.
        rank_thread: the thread on which it runs.
        trace: gets a span for every collective, if given.
    """

    def __init__(
        self,
        meeting_point: MeetingPoint,
        rank: int,
        rank_thread: RankThread,
        trace: Trace | None = None,
    ) -> None:
        self.meeting_point = meeting_point
        self.rank = rank
        self.world_size = len(meeting_point.hosts)
        self.clock = rank_thread
        self.trace = trace
        self.recent = RecentCalls()
        self.lanes: dict[Lane, _Lane] = {}
        self._ports: dict[int, SimulatedPort] = {}
        rank_thread.on_death.append(partial(meeting_point.remove, rank))

    def post(self, step: Step, buffer: Buffer, fingerprint: int) -> simpy.Event:
        """Start all operations of *step*; the event fires when all are complete."""
        return self._ports[fingerprint].post(step, buffer, fingerprint)

    def drain(self, fingerprint: int) -> None:
        """Return None: a step is complete when its sends are."""

    def port(self, fingerprint: int) -> SimulatedPort:
        """Return this rank's side of the meeting point for the execution under *fingerprint*."""
        return self._ports[fingerprint]

    def start(self, execution: Execution, call: Call) -> SimulatedWork:
        """Start *execution* at the rank's local time, after those started before it in its lane."""
        self.clock.check_thread()
        self.recent.append(call)
        self.meeting_point.reports[self.rank] = Report(call, "posted", tuple(self.recent))
        if call.lane not in self.lanes:
            self.lanes[call.lane] = _Lane(self.meeting_point, self.rank)
        lane = self.lanes[call.lane]
        observed = partial(self._observe, execution, call, lane.port)
        done = lane.stream.submit(observed, not_before_ps=self.clock.now_ps())
        return SimulatedWork(self.clock, done, call, lane.port)

    def _observe(self, execution: Execution, call: Call, port: SimulatedPort) -> Execution:
        env = self.meeting_point.network.env
        began_ps, fingerprint = int(env.now), call.fingerprint()
        rank_overhead = self.meeting_point.rank_overhead
        overheads = None
        if call.lane is None and not rank_overhead.is_free:
            overheads = StepOverheads(rank_overhead, self.world_size, call.sequence)
        port.begin(str(call), overheads)
        self._ports[fingerprint] = port
        yield from execution
        del self._ports[fingerprint]
        if self.trace is not None:
            shown_on = "communication" if call.lane is None else "messages {} > {}".format(*call.lane)
            self.trace.span(self.clock.rank, shown_on, str(call), began_ps, int(env.now))

    def poll(self) -> None:
        """Do nothing: in virtual time everything in flight advances by itself."""


class SimulatedWork:
    """A collective in flight in virtual time; a `Work` and `Interrupting` (`collectives.execution.work`)."""

    def __init__(self, rank_thread: RankThread, done: simpy.Event, call: Call, port: SimulatedPort) -> None:
        self.rank_thread = rank_thread
        self.done = done
        self.call = call
        self.port = port
        self.completed_ps: int | None = None
        assert done.callbacks is not None
        done.callbacks.append(self._note)

    def _note(self, done: simpy.Event) -> None:
        if done.ok:
            self.completed_ps = int(done.env.now)

    def wait(self, timeout: float | None = None) -> None:
        """Wait in virtual time; *timeout* is not needed, as a deadlock is found at once."""
        meeting_point, rank = self.port.meeting_point, self.port.rank
        meeting_point.waiting[rank] = self.call
        self.rank_thread.wait(self.done, self._describe)
        del meeting_point.waiting[rank]

    def _describe(self) -> str:
        group = self.port.meeting_point.group
        numbered = f", {group}, numbered from 0" if group else ""
        return f"{self.call}{numbered}: {self.port.doing()}"

    def is_completed(self) -> bool:
        """Return whether the result is in place at this rank's local time."""
        return self.rank_thread.poll(self.done)

    def interrupt(self, handler: Callable[[], None]) -> None:
        """Call *handler* in the rank's thread once the result is in place, should the rank compute then."""
        self.rank_thread.interrupt(self.done, handler)
