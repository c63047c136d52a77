"""Queues of collectives: those of one communicator, one after another on each rank, in virtual time.

Three engines behind one call.  *makespan* evaluates a collective for all ranks at once when it is submitted.
*events* and *ranks* send its messages through `sim.network.network`, the same messages at the same times:
*ranks* rank by rank, as live ranks do (`collectives.timing.ranks.rank_by_rank`); *events* as rows of
arrays (`collectives.timing.rows.row_execution`) where sends and receives match row by row, else as
*ranks* does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Literal, TypeAlias

import numpy as np
import simpy

from collectives.errors import NotExactError, ProgramError
from collectives.execution.transport_model import IDEAL, TransportModel
from collectives.program import Algorithm
from collectives.program.chunking import Chunking
from collectives.timing.job import PlannedJob
from collectives.timing.observation import Observation
from collectives.timing.ranks.attention import Attention
from collectives.timing.ranks.meeting_point import MeetingPoint
from collectives.timing.ranks.rank_by_rank import RankByRank
from collectives.timing.rows.makespan import Evaluated, Makespan
from collectives.timing.rows.out_of_step import OutOfStep, run_out_of_step
from collectives.timing.rows.repeated_rows import sized_rows
from collectives.timing.rows.row_execution import RowExecution, call_after, rows_follow
from sim.network import Network
from sim.scenario import Scenario
from sim.scenario.rank_overhead import RankOverhead
from sim.scenario.step_overheads import StepOverheads
from sim.topology import Topology
from sim.units import Int64Array

EngineName: TypeAlias = Literal["makespan", "events", "ranks"]


@dataclass(frozen=True, slots=True)
class CallSpan:
    """From the first rank's start to the last rank's end, in picoseconds."""

    start_ps: int
    end_ps: int


def collective_queue(
    env: simpy.Environment,
    topology: Topology,
    *,
    engine: EngineName,
    itemsize: int = 1,
    hosts: Sequence[int] | Int64Array | None = None,
    rank_overhead: RankOverhead | None = None,
    transport_model: TransportModel = IDEAL,
    attention: Attention | None = None,
    network: Network | None = None,
    observer: Observation | None = None,
    earlier: list[Evaluated] | None = None,
    lasting: bool = True,
) -> CollectiveQueue:
    """Return a queue of collectives among ranks at *hosts*; by default rank r is at place r of *topology*.

    The time of *env* is in picoseconds.  *attention* says when ranks notice that a step is complete, by
    default at once; *earlier*, for *makespan*: see `collectives.timing.rows.makespan.Makespan`.  For *events*
    and *ranks*, *network* is that of *topology* which other queues use too, by default one of its own, and
    *observer* is told of every step and message, rank by rank; *lasting*, for *events*: see `RowExecution`.
    """
    if engine == "makespan":
        makespan = Makespan(topology, hosts, rank_overhead, transport_model, attention, earlier)
        return MakespanQueue(env, makespan, itemsize)
    by_rule = attention is not None or not rows_follow(transport_model, rank_overhead)
    network = network or Scenario(topology).network(env)
    places = None if hosts is None else np.asarray(hosts).tolist()
    meeting_point = MeetingPoint(network, places, rank_overhead, transport_model=transport_model)
    meeting_point.observer = observer
    rank_by_rank = engine == "ranks" or observer is not None or by_rule
    return EventQueue(meeting_point, itemsize, rank_by_rank, attention, lasting)


def goes_out_of_step(planned: PlannedJob) -> bool:
    """Return whether `spans_out_of_step` can follow *planned*: its rows match, and links stay as they are."""
    scenario = planned.scenario
    return (
        scenario.events_only is None
        and scenario.topology.sharing is None
        and rows_follow(planned.transport_model, planned.rank_overhead)
        and matches_by_rows(planned.algorithm, len(planned.hosts), planned.chunking)
    )


def spans_out_of_step(
    jobs: Sequence[PlannedJob], watch: Callable[[int], None] | None = None
) -> list[CallSpan]:
    """Return when each of *jobs*, alone on their network, begins and ends; see `run_out_of_step`."""
    topology, collectives = jobs[0].scenario.topology, []
    for planned in jobs:
        hosts, overhead = np.asarray(planned.hosts), planned.rank_overhead
        overheads = StepOverheads.of(overhead, len(hosts), 0)
        start_ps = planned.start_ps + overhead.delays_of(len(hosts))
        collectives.append(
            OutOfStep(topology, hosts, planned.algorithm, planned.chunking, overheads, start_ps)
        )
    starts_ps = [min(collective.through_ps) for collective in collectives]
    run_out_of_step(topology, collectives, watch)
    return [
        CallSpan(start_ps, max(collective.through_ps))
        for start_ps, collective in zip(starts_ps, collectives, strict=True)
    ]


def run_until(env: simpy.Environment, event: simpy.Event, watch: Callable[[int], None] | None = None) -> Any:
    """Run *env* until *event* has fired and return its value.

    *watch* is told the time, in picoseconds, after everything that happens.

    Raises:
        ProgramError: nothing is left to happen, so that it will never fire.
    """
    try:
        while watch is not None and not event.processed and env.peek() != inf:
            env.step()
            watch(int(env.now))
        return env.run(until=event)
    except RuntimeError as error:
        if event.triggered or type(error) is not RuntimeError:  # simpy's own says that nothing is left
            raise
        raise ProgramError("deadlock in virtual time; verify() shows which ranks wait for what") from error


class MakespanQueue:
    """Collectives evaluated when they are submitted, all ranks at once."""

    def __init__(self, env: simpy.Environment, makespan: Makespan, itemsize: int) -> None:
        self._env = env
        self._makespan = makespan
        self._itemsize = itemsize
        self._free_ps = np.zeros(len(makespan.hosts), dtype=np.int64)
        self._delays_ps = makespan.rank_overhead.delays_of(len(makespan.hosts))

    def submit(self, algorithm: Algorithm, nbytes: int) -> simpy.Event:
        """Let every rank start a collective of *nbytes* by *algorithm* now, after those before it.

        The event fires when the last rank is done; its value is a `CallSpan`.
        """
        now = int(self._env.now)
        start = np.maximum(self._free_ps, now + self._delays_ps)
        count = nbytes // self._itemsize
        chunking = Chunking.of(algorithm, len(self._free_ps), count, self._itemsize)
        self._free_ps = self._makespan.run(algorithm, chunking, start)
        span = CallSpan(int(start.min()), int(self._free_ps.max()))
        return self._env.timeout(span.end_ps - now, value=span)


class EventQueue:
    """Collectives whose messages travel over the network of *meeting_point*; see `collective_queue`."""

    def __init__(
        self,
        meeting_point: MeetingPoint,
        itemsize: int,
        rank_by_rank: bool,
        attention: Attention | None,
        lasting: bool,
    ) -> None:
        self._meeting_point = meeting_point
        self._network = meeting_point.network
        self._itemsize = itemsize
        self._rank_by_rank = rank_by_rank
        self._attention = attention
        self._lasting = lasting
        self._hosts = np.array(meeting_point.hosts)
        self._rank_overhead = meeting_point.rank_overhead
        self._delays_ps = self._rank_overhead.delays_of(len(self._hosts))
        self._calls: list[_Call] = []
        self._num_done = np.zeros(len(self._hosts), dtype=np.int64)  # calls that each rank is through with

    def submit(self, algorithm: Algorithm, nbytes: int) -> simpy.Event:
        """Let every rank start a collective now; see `MakespanQueue.submit`."""
        number, num_ranks = len(self._calls), len(self._hosts)
        chunking = Chunking.of(algorithm, num_ranks, nbytes // self._itemsize, self._itemsize)
        overheads = StepOverheads.of(self._rank_overhead, num_ranks, number)
        finished = partial(self._note_finished, number)

        execution: Execution
        if self._rank_by_rank or not matches_by_rows(algorithm, num_ranks, chunking):
            execution = RankByRank.of(
                self._meeting_point, algorithm, chunking, overheads, number, finished, self._attention
            )
        else:
            execution = RowExecution(
                self._network, self._hosts, algorithm, chunking, overheads, finished, lasting=self._lasting
            )

        env = self._network.env
        call = _Call(execution, env.event(), int(env.now))
        self._calls.append(call)
        self._begin(call, np.flatnonzero(self._num_done == number))
        return call.done

    def _begin(self, call: _Call, ranks: Int64Array) -> None:
        """Let *ranks* start *call*; it reaches late ones so much after it was submitted."""
        env = self._network.env
        starts = np.maximum(call.submitted_ps + self._delays_ps[ranks], int(env.now))
        if not starts.size:
            return
        first = int(starts.min())
        call.start_ps = first if call.start_ps is None else min(call.start_ps, first)
        call_after(env, starts - int(env.now), ranks, call.execution.begin)

    def _note_finished(self, number: int, ranks: Int64Array) -> None:
        """Let *ranks*, which are through with a call, go on to the next."""
        self._num_done[ranks] += 1
        call = self._calls[number]
        call.num_done += len(ranks)
        if call.num_done == len(self._hosts):
            assert call.start_ps is not None
            call.done.succeed(CallSpan(call.start_ps, int(self._network.env.now)))
        if number + 1 < len(self._calls):
            self._begin(self._calls[number + 1], ranks)


CollectiveQueue: TypeAlias = MakespanQueue | EventQueue
"""The collectives of one communicator, one after another, in virtual time."""

Execution: TypeAlias = RankByRank | RowExecution
"""A collective on the ranks of a group, event by event; who made it is told when they are done."""


@dataclass(eq=False)
class _Call:
    """A collective that was submitted, and how far it is."""

    execution: Execution
    done: simpy.Event
    submitted_ps: int
    start_ps: int | None = None
    num_done: int = 0


def matches_by_rows(algorithm: Algorithm, num_ranks: int, chunking: Chunking) -> bool:
    """Return whether what is sent in a row is received in that row, and rows are cheap to come by."""
    try:
        for _ in sized_rows(algorithm, num_ranks, chunking):
            pass
    except NotExactError:
        return False
    return True
