"""Instance of a call: one call of one group, who has come to it, and who is through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import simpy

from collectives.timing.ranks.meeting_point import MeetingPoint
from collectives.virtual.group_calls.facts import CallFacts
from collectives.virtual.group_calls.on_network import SplitsOfRank, execution_on
from collectives.virtual.time_outs import TimeOut
from sim.scenario.step_overheads import StepOverheads
from sim.units import Int64Array


class Instance:
    """One call of one group on the network.

    Args:
        meeting_point: of the group.
        facts: of the call.
        over: called when all ranks that take part are through.

    Attributes:
        facts: of the call.
    """

    def __init__(self, meeting_point: MeetingPoint, facts: CallFacts, over: Callable[[], None]) -> None:
        self._over = over
        self._meeting_point = meeting_point
        self.facts = facts
        self._place = {host: rank for rank, host in enumerate(meeting_point.hosts)}
        lane = facts.call.lane
        self._num_left = len(meeting_point.hosts) if lane is None else 2
        self._through: dict[int, Callable[[Sequence[int]], None]] = {}
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
        if call.lane is not None:
            overhead = replace(overhead, jitter=None)
        return StepOverheads.of(overhead, len(self._meeting_point.hosts), call.sequence)

    def begin(self, hosts: Sequence[int], facts: CallFacts, through: Callable[[Sequence[int]], None]) -> None:
        """Let the ranks at *hosts* come now; *through* is told of each when it is through."""
        env = self._meeting_point.network.env
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
        told: dict[Callable[[Sequence[int]], None], list[int]] = {}
        for rank in ranks.tolist():
            told.setdefault(self._through.pop(rank), []).append(self._meeting_point.hosts[rank])
        for through, hosts in told.items():
            through(hosts)
