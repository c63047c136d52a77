"""Execution of a collective event by event, each rank a SimPy process that runs its own program.

Slower than rows of arrays, and right for every program: what a rank sends in one step a peer may
receive in another.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from collectives.execution.execute import execute
from collectives.execution.transport import Execution
from collectives.program import Algorithm
from collectives.program.chunking import Buffer, Chunking
from collectives.timing.ranks.attention import Attention
from collectives.timing.ranks.meeting_point import MeetingPoint
from collectives.timing.ranks.simulated_port import SimulatedPort
from sim.scenario.step_overheads import StepOverheads
from sim.units import Int64Array


class RankByRank:
    """One collective on the ranks of a group; a `collectives.timing.queues.Execution`.

    Args:
        meeting_point: where the ranks meet.
        algorithm: the program of every rank.
        chunking: how it divides the buffer.
        overheads: what ranks add to the time of the network, if anything.
        fingerprint: keeps the messages of this collective apart from those of others.
        finished: called with ranks that are done, once for each.
        attention: when a rank notices that a step is complete; None: at once.
    """

    def __init__(
        self,
        meeting_point: MeetingPoint,
        algorithm: Algorithm,
        chunking: Chunking,
        overheads: StepOverheads | None,
        fingerprint: int,
        finished: Callable[[Int64Array], None],
        attention: Attention | None = None,
    ) -> None:
        self._meeting_point = meeting_point
        self._algorithm = algorithm
        self._buffer = Buffer(chunking)
        self._overheads = overheads
        self._fingerprint = fingerprint
        self._finished = finished
        self._attention = attention

    def begin(self, ranks: Int64Array) -> None:
        """Let *ranks* start now."""
        for rank in ranks.tolist():
            self._meeting_point.network.env.process(self._run(rank))

    def _run(self, rank: int) -> Execution:
        port = SimulatedPort(self._meeting_point, rank)
        port.begin(f"{self._algorithm.collective} by {self._algorithm}", self._overheads)
        execution = execute(self._algorithm, self._buffer, port, self._fingerprint)
        yield from execution if self._attention is None else self._when_noticed(execution, self._attention)
        self._finished(np.array([rank]))

    def _when_noticed(self, execution: Execution, attention: Attention) -> Execution:
        """Go on after each step when the rank has noticed that it is complete."""
        env = self._meeting_point.network.env
        for handle in execution:
            yield handle
            now_ps = int(env.now)
            yield env.timeout(attention.next_ps(now_ps) - now_ps)
