"""Queue of collectives that go on when their ranks call, all ranks at the same times.

The rule is that of `collectives.transports.progress`, which rank threads follow one by one
(`collectives.virtual.progress`).  A collective is posted when it is submitted, whatever is in flight before
it.  In a call all that is in flight goes on as far as it goes without waiting.  Ranks that wait for a
collective advance the first that is in flight, and so on, up to it.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

import simpy

from collectives.execution.execute import execute
from collectives.execution.transport import Execution
from collectives.execution.transport_model import TransportModel
from collectives.program import Algorithm
from collectives.program.chunking import Buffer, Chunking
from collectives.timing.ranks.meeting_point import MeetingPoint
from collectives.timing.ranks.simulated_port import SimulatedPort
from collectives.timing.ranks.step_in_flight import CalledProgram
from sim.network import Network
from sim.network.schedule import end_of_instant
from sim.scenario.rank_overhead import RankOverhead
from sim.scenario.step_overheads import StepOverheads

Process = Generator[simpy.Event, Any, None]


class CalledQueue:
    """Collectives of one communicator whose ranks call together.

    Args:
        network: carries the messages; rank r is at place r.
        itemsize: bytes of an element.
        rank_overhead: what ranks add to the time of the network.
        transport_model: how a rank completes a step.
    """

    def __init__(
        self, network: Network, itemsize: int, rank_overhead: RankOverhead, transport_model: TransportModel
    ) -> None:
        self.env = network.env
        self.num_ranks = network.topology.num_ranks
        self._network = network
        self._itemsize = itemsize
        self._rank_overhead = rank_overhead
        self._meeting_point = MeetingPoint(network, transport_model=transport_model)
        self._in_flight: list[list[_OnRank]] = [[] for _ in range(self.num_ranks)]
        self._num_calls = 0
        self._awaited: int | None = None

    def submit(self, algorithm: Algorithm, nbytes: int) -> tuple[int, simpy.Event]:
        """Let every rank post a collective now; return its number, and what fires when all are done."""
        number, env = self._num_calls, self.env
        self._num_calls += 1
        chunking = Chunking.of(algorithm, self.num_ranks, nbytes // self._itemsize, self._itemsize)
        overheads = StepOverheads.of(self._rank_overhead, self.num_ranks, number)
        own = [_OnRank(self, number, rank) for rank in range(self.num_ranks)]
        for on_rank in own:
            self._in_flight[on_rank.rank].append(on_rank)
            port = SimulatedPort(self._meeting_point, on_rank.rank)
            port.begin(f"{algorithm.collective} by {algorithm}", overheads, on_rank.program)
            on_rank.port = port
            env.process(on_rank.run(execute(algorithm, Buffer(chunking), port, number)))
        return number, env.all_of([on_rank.done for on_rank in own])

    def posted(self) -> Process:
        """Wait until all that was submitted has been posted, and has gone on as far as it goes."""
        yield self.env.all_of([own.program.moved for on_rank in self._in_flight for own in on_rank])
        yield from self.call(observing=False)

    def call(self, observing: bool = True) -> Process:
        """Let all that is in flight go on as far as it goes without waiting."""
        yield from self._settled()
        running = [self.env.process(self._advance(rank, observing)) for rank in range(self.num_ranks)]
        yield self.env.all_of(running)
        yield from self._settled()

    def wait(self, number: int | None) -> None:
        """Note that all ranks wait for the collective of that number from now on; None: that they compute."""
        self._awaited = number
        if number is not None:
            for rank in range(self.num_ranks):
                self.go_on(rank)

    def drives(self, own: _OnRank) -> bool:
        """Return whether the rank waits, and by that advances *own*."""
        if self._awaited is None:
            return False
        flying = self._in_flight[own.rank]
        return bool(flying) and flying[0] is own and own.number <= self._awaited

    def over(self, own: _OnRank) -> None:
        """Note that a collective is over on a rank, which may drive the next."""
        self._in_flight[own.rank].remove(own)
        self.go_on(own.rank)

    def go_on(self, rank: int) -> None:
        """Let go on what the rank drives."""
        for own in self._in_flight[rank][:1]:
            if own.program.held is not None and self.drives(own):
                own.program.move()

    def _advance(self, rank: int, observing: bool) -> Process:
        for own in tuple(self._in_flight[rank]):
            program = own.program
            while program.held is not None:
                if observing:
                    own.port.program.sends.notice()
                if not program.held.is_free():
                    break
                program.moved = simpy.Event(self.env)
                program.move()
                yield program.moved

    def _settled(self) -> Process:
        """Let all happen that happens now."""
        yield end_of_instant(self.env)


class _OnRank:
    """A collective on one rank."""

    def __init__(self, queue: CalledQueue, number: int, rank: int) -> None:
        self.queue = queue
        self.number = number
        self.rank = rank
        self.port: SimulatedPort
        drives = partial(queue.drives, self)
        self.program = CalledProgram(queue.env, drives, drives)
        self.done = simpy.Event(queue.env)

    def run(self, execution: Execution) -> Execution:
        """Carry the program out."""
        yield from execution
        self.done.succeed()
        self.program.offered()
        self.queue.over(self)
