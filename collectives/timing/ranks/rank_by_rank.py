"""Execution of a collective event by event, each rank a SimPy process that runs its own program.

Slower than rows of arrays, and right for every program: what a rank sends in one step a peer may
receive in another.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import simpy

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

    *run* says what a rank does; *finished* is called with ranks that are done, once for each.
    """

    def __init__(
        self, env: simpy.Environment, run: Callable[[int], Execution], finished: Callable[[Int64Array], None]
    ) -> None:
        self._env = env
        self._run_rank = run
        self._finished = finished

    @classmethod
    def of(
        cls,
        meeting_point: MeetingPoint,
        algorithm: Algorithm,
        chunking: Chunking,
        overheads: StepOverheads | None,
        fingerprint: int,
        finished: Callable[[Int64Array], None],
        attention: Attention | None = None,
    ) -> RankByRank:
        """Return *algorithm* on the ranks of *meeting_point*; see `RowExecution`.

        Its *fingerprint* keeps its messages apart from those of others; with *attention*, a rank notices only
        then that a step is complete.
        """
        env, buffer = meeting_point.network.env, Buffer(chunking)

        def run(rank: int) -> Execution:
            port = SimulatedPort(meeting_point, rank)
            port.begin(f"{algorithm.collective} by {algorithm}", overheads)
            for handle in execute(algorithm, buffer, port, fingerprint):
                yield handle
                if attention is not None:
                    yield env.timeout(attention.next_ps(int(env.now)) - int(env.now))

        return cls(env, run, finished)

    def begin(self, ranks: Int64Array) -> None:
        """Let *ranks* start now."""
        for rank in ranks.tolist():
            self._env.process(self._run(rank))

    def _run(self, rank: int) -> Execution:
        yield from self._run_rank(rank)
        self._finished(np.array([rank]))
