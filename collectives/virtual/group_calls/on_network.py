"""Calls on a network: the messages of one call of one group, by sizes alone, row by row or rank by rank.

The messages are those that rank threads with data would send, at the same times: row by row where rows
follow the program and the transport model (`collectives.timing.rows.row_execution`), else rank by
rank (`collectives.timing.ranks.rank_by_rank`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
import simpy

from collectives.algorithms.direct import direct_all_to_all
from collectives.communicators.all_to_all_v import among
from collectives.execution.execute import execute
from collectives.execution.transport import Execution
from collectives.program.chunking import Buffer, Chunking, Splits
from collectives.timing.queues import Execution as ExecutionOfAll
from collectives.timing.queues import matches_by_rows
from collectives.timing.ranks.meeting_point import MeetingPoint
from collectives.timing.ranks.rank_by_rank import RankByRank
from collectives.timing.ranks.simulated_port import SimulatedPort
from collectives.timing.rows.row_execution import RowExecution, rows_follow
from collectives.virtual.group_calls.family import CallFacts
from collectives.virtual.streams.score import Through
from collectives.virtual.time_outs import TimeOut
from sim.scenario.step_overheads import StepOverheads
from sim.units import Int64Array

SplitsOfRank = tuple[tuple[int, ...], tuple[int, ...]]
"""Elements of each part that a rank receives, and of each that it sends."""

_SIZE_NBYTES = 8  # of a number by which ranks tell each other the sizes of parts


def execution_on(
    meeting_point: MeetingPoint,
    facts: CallFacts,
    overheads: StepOverheads | None,
    finished: Callable[[Int64Array], None],
    splits: Callable[[int], SplitsOfRank | None],
) -> ExecutionOfAll:
    """Return what sends the messages of a call on the network of *meeting_point*.

    Args:
        meeting_point: of the group.
        facts: of the call.
        overheads: what ranks add to the time of the network, if anything.
        finished: called with ranks of the group that are through, once for each.
        splits: returns those of a rank of the group that has begun, where parts are of any size.
    """
    fingerprint, num_ranks = facts.call.fingerprint(), len(meeting_point.hosts)
    if facts.splits is not None:
        run = _parts_by_rank(meeting_point, facts, overheads, fingerprint, splits)
        return RankByRank(meeting_point.network.env, run, finished)

    algorithm, chunking = facts.algorithm, facts.chunking
    by_rows = (
        meeting_point.is_calm
        and rows_follow(meeting_point.transport_model, meeting_point.rank_overhead)
        and matches_by_rows(algorithm, num_ranks, chunking)
    )
    if by_rows:
        hosts = np.array(meeting_point.hosts)
        return RowExecution(meeting_point.network, hosts, algorithm, chunking, overheads, finished)
    return RankByRank.of(meeting_point, algorithm, chunking, overheads, fingerprint, finished)


def _parts_by_rank(
    meeting_point: MeetingPoint,
    facts: CallFacts,
    overheads: StepOverheads | None,
    fingerprint: int,
    splits_of: Callable[[int], SplitsOfRank | None],
) -> Callable[[int], Execution]:
    """Return what a rank does in an all-to-all of parts of any size: sizes, then parts.

    That is as in `collectives.communicators.all_to_all_v`.
    """
    num_ranks = len(meeting_point.hosts)

    def splits(rank: int) -> SplitsOfRank:
        known = splits_of(rank)
        assert known is not None, "sizes arrive from ranks that have begun"
        return known

    def run(rank: int) -> Execution:
        port = SimulatedPort(meeting_point, rank)
        port.begin(str(facts.call), overheads)
        told = Buffer(Chunking.of(direct_all_to_all, num_ranks, 2 * num_ranks, _SIZE_NBYTES))
        yield from execute(direct_all_to_all, told, port, fingerprint)

        received, sent = splits(rank)
        agreed = [
            peer
            for peer in range(num_ranks)
            if (received[peer], sent[peer]) == (splits(peer)[1][rank], splits(peer)[0][rank])
        ]
        starts = tuple(accumulate((*sent, *received), initial=0))
        parts = Buffer(Splits(starts, num_ranks, facts.chunking.itemsize))
        yield from execute(among(agreed), parts, port, fingerprint)

    return run


class Instance:
    """One call of one group on the network."""

    def __init__(self, meeting_point: MeetingPoint, facts: CallFacts, over: Callable[[], None]) -> None:
        self._over = over
        self._meeting_point = meeting_point
        self.facts = facts
        self._place = {host: rank for rank, host in enumerate(meeting_point.hosts)}
        lane = facts.call.lane
        self._num_left = len(meeting_point.hosts) if lane is None else 2
        self._through: dict[int, Through] = {}
        self._met_ps = 0
        self._splits: list[SplitsOfRank | None] = [None] * len(meeting_point.hosts)
        self._coming: list[int] = []
        self._time_out: TimeOut | None = None
        if facts.limit_ps is not None:
            self._time_out = TimeOut(meeting_point.hosts, facts.limit_ps)
        self._execution = execution_on(
            meeting_point, facts, self._overheads(), self._finish, self._splits.__getitem__
        )

    def _overheads(self) -> StepOverheads | None:
        """Return what ranks add to the time of the network; jitter is for collectives alone."""
        overhead, call = self._meeting_point.rank_overhead, self.facts.call
        if not self.facts.launches:
            overhead = overhead.in_one_kernel()
        if call.lane is not None:
            overhead = replace(overhead, jitter=None)
        return StepOverheads.of(overhead, len(self._meeting_point.hosts), call.sequence)

    def begin(self, hosts: Sequence[int], facts: CallFacts, through: Through) -> None:
        """Let the ranks at *hosts* come now; *through* is told of each when it is through."""
        env = self._meeting_point.network.env
        self._met_ps = int(env.now)
        for host in hosts:
            rank = self._place[host]
            self._through[rank] = through
            self._splits[rank] = facts.splits
            self._coming.append(rank)
            if self._time_out is not None:
                self._time_out.come(rank, int(env.now), facts.call)
        if len(self._coming) == len(hosts):
            env.timeout(0).callbacks.append(self._begin)

    def waiting(self) -> list[int]:
        """Return the ranks of the group that have come and are not through."""
        return list(self._through)

    def _begin(self, _: simpy.Event) -> None:
        """Let those that have come at this instant begin together."""
        ranks, self._coming = np.array(sorted(self._coming)), []
        self._execution.begin(ranks)

    def _finish(self, ranks: Int64Array) -> None:
        self._num_left -= len(ranks)
        if not self._num_left:
            self._over()
        told: dict[Through, list[int]] = {}
        for rank in ranks.tolist():
            told.setdefault(self._through.pop(rank), []).append(self._meeting_point.hosts[rank])
        for through, hosts in told.items():
            through(hosts, self._met_ps)
