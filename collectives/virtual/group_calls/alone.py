"""Calls alone on their links: when each rank is through, worked out at once and remembered.

A call of whole groups that meet nobody on their links depends on nothing but when each rank came.  It is
evaluated for all ranks at once (`collectives.timing.rows.makespan`), for sibling groups together,
as they may share links; or where that cannot tell, message by message on a network of its own.  Both are
exact, so what has been found serves whenever ranks come to the same call in the same order again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import simpy

from collectives.errors import NotExactError, ProgramError
from collectives.execution.transport_model import TransportModel
from collectives.timing.links import Traffic
from collectives.timing.queues import Execution
from collectives.timing.ranks.meeting_point import MeetingPoint
from collectives.timing.rows.makespan import Makespan
from collectives.timing.rows.row_execution import call_after, rows_follow
from collectives.virtual.group_calls.family import CallFacts, Family
from collectives.virtual.group_calls.footprint import Footprint
from collectives.virtual.group_calls.on_network import SplitsOfRank, execution_on
from sim.network import Network
from sim.scenario import Scenario
from sim.scenario.rank_overhead import RankOverhead
from sim.scenario.step_overheads import StepOverheads
from sim.units import Int64Array

_REMEMBERED = 256


@dataclass(frozen=True, eq=False)
class Outcome:
    """What becomes of a call of some groups of a family.

    Attributes:
        ends_ps: which places are through when, from the time at which the first of these groups began.
        free_from_ps: when each link of the footprint is free again, from the same time; negative for those
            that are not used.
        link_bytes: what crosses each link of the network.
    """

    ends_ps: tuple[tuple[int, Int64Array], ...]
    free_from_ps: Int64Array
    link_bytes: Int64Array


class CallsAlone:
    """Outcomes of calls that meet no others."""

    def __init__(
        self, scenario: Scenario, rank_overhead: RankOverhead, transport_model: TransportModel
    ) -> None:
        self.scenario = scenario
        self.rank_overhead = rank_overhead
        self.transport_model = transport_model
        self._known: OrderedDict[Any, tuple[Footprint, Outcome]] = OrderedDict()

    def outcome(
        self,
        family: Family,
        groups: Int64Array,
        facts: CallFacts,
        footprint: Footprint,
        offsets_ps: Int64Array,
        splits: tuple[SplitsOfRank | None, ...] = (),
    ) -> Outcome:
        """Return what becomes of the call of *facts* by *groups* of *family*.

        Args:
            family: of groups.
            groups: their numbers in it.
            facts: of the call.
            footprint: of its program.
            offsets_ps: when the ranks of these groups began, the first at 0, group by group.
            splits: of these ranks, where parts are of any size.

        Raises:
            ProgramError: the program deadlocks.
        """
        key = id(footprint), facts.launches, groups.tobytes(), facts.chunking, splits, offsets_ps.tobytes()
        if key not in self._known:
            places = family.places_of_groups(groups)
            hosts = family.members[places]
            try:
                ends, nbytes = self._by_rows(hosts, len(groups), facts, offsets_ps)
            except NotExactError:
                ends, nbytes = self._by_events(hosts, len(groups), facts, offsets_ps, splits)
            ends_ps = np.full(len(family), -1, dtype=np.int64)
            ends_ps[places] = ends
            by_end = tuple((end, places[ends == end]) for end in np.unique(ends).tolist())
            self._known[key] = footprint, Outcome(by_end, footprint.free_from(ends_ps), nbytes)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key][1]

    def _by_rows(
        self, hosts: Int64Array, num_groups: int, facts: CallFacts, offsets_ps: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """Return when ranks are through, and what crosses each link.

        Raises:
            NotExactError: rows cannot tell.
        """
        overhead = self._overhead(hosts, facts)
        if facts.splits is not None or not rows_follow(self.transport_model, overhead):
            raise NotExactError("not row by row")
        topology = self.scenario.topology
        makespan, counter = Makespan(topology, hosts, overhead), Traffic(topology, hosts)
        ends = makespan.run(facts.algorithm, facts.chunking, offsets_ps, num_groups, counter.add)
        return ends, counter.link_bytes

    def _by_events(
        self,
        hosts: Int64Array,
        num_groups: int,
        facts: CallFacts,
        offsets_ps: Int64Array,
        splits: tuple[SplitsOfRank | None, ...],
    ) -> tuple[Int64Array, Int64Array]:
        """Return the same, from messages on a network of its own.

        Raises:
            ProgramError: the program deadlocks.
        """
        env = simpy.Environment(initial_time=0)
        network = self.scenario.network(env)
        ends = np.full(len(hosts), -1, dtype=np.int64)

        def finish(first: int, ranks: Int64Array) -> None:
            ends[first + ranks] = int(env.now)

        size = len(hosts) // num_groups
        for first in range(0, len(hosts), size):
            own = slice(first, first + size)
            own_splits = splits[own] or (None,) * size
            execution = self.execution(
                network, hosts[own], facts, partial(finish, first), own_splits.__getitem__
            )
            call_after(env, offsets_ps[own], np.arange(size), execution.begin)
        env.run()

        if (ends < 0).any():
            raise ProgramError(f"{facts.call}: deadlock in virtual time; verify() shows who waits for what")
        return ends, network.link_bytes

    def execution(
        self,
        network: Network,
        hosts: Int64Array,
        facts: CallFacts,
        finished: Callable[[Int64Array], None],
        splits: Callable[[int], SplitsOfRank | None],
    ) -> Execution:
        """Return the messages of a call of one group on *network*; see `execution_on`."""
        overhead = self._overhead(hosts, facts)
        meeting_point = MeetingPoint(network, hosts.tolist(), overhead, transport_model=self.transport_model)
        meeting_point.is_calm = True
        overheads = StepOverheads.of(overhead, len(hosts), facts.call.sequence)
        return execution_on(meeting_point, facts, overheads, finished, splits)

    def _overhead(self, hosts: Int64Array, facts: CallFacts) -> RankOverhead:
        """Return what ranks at *hosts* add to the time of a call."""
        overhead = self.scenario.rank_overhead(self.rank_overhead, hosts)
        return overhead if facts.launches else overhead.in_one_kernel()
