"""Group calls: how long collectives and messages take, by sizes alone, all members and siblings in flight.

Ranks on a GPU exchange their data apart from time, and time apart from data.  What is timed here is a
`Call` of a group: its messages, as large as the program makes them, on the network that all ranks share.  A
rank begins it when its communication stream comes to it, and is told when it is through.  Ranks that do the
same are one to whoever calls: each of *ranks* takes part in the call of its own group, be that the group of
the caller or a sibling of it (`collectives.virtual.group_calls.siblings`).

    calls        the calls of one run (open first)
    facts        what a rank says of a call
    siblings     groups that were made together
    instance     one call of one group: who has come, who is through
    on_network   its messages, row by row or rank by rank
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, MutableMapping, Sequence
from functools import partial
from typing import TypeAlias

from collectives.errors import NotSupportedError
from collectives.execution.transport_model import IDEAL, TransportModel
from collectives.simulation.engines.meeting_point import MeetingPoint
from collectives.virtual.group_calls.facts import CallFacts
from collectives.virtual.group_calls.instance import Instance
from collectives.virtual.group_calls.siblings import Hosts, NoSiblings, Ordinal, Siblings
from sim.network import Network
from sim.scenario import Scenario
from sim.scenario.rank_overhead import RankOverhead

Through: TypeAlias = Callable[[Sequence[int]], None]
"""Engine: called with ranks, by number in the run, that are through, at that instant, once for each."""


class GroupCalls:
    """The calls of all groups of one run.

    Args:
        scenario: the topology under conditions.
        network: that all ranks share.
        meeting_points: of the groups, which get those of the calls made here.
        rank_overhead: what ranks add to the time of the network, where no condition holds.
        transport_model: how ranks complete the steps of collectives.
        delay_ps: how late the next message between two ranks sets out, if messages are late.
        is_calm: no link changes, no message is late and no rank dies.

    Attributes:
        siblings: which groups were made together; by default every group is by itself.
    """

    def __init__(
        self,
        scenario: Scenario,
        network: Network,
        meeting_points: MutableMapping[Hashable, MeetingPoint],
        rank_overhead: RankOverhead | None = None,
        transport_model: TransportModel = IDEAL,
        delay_ps: Callable[[int, int], int] | None = None,
        is_calm: bool = True,
    ) -> None:
        self.siblings: Siblings = NoSiblings()
        self._scenario = scenario
        self._network = network
        self._meeting_points = meeting_points
        self._rank_overhead = rank_overhead or RankOverhead()
        self._transport_model = transport_model
        self._delay_ps = delay_ps
        self._is_calm = is_calm
        self._own_points: dict[tuple[Hosts, Ordinal], MeetingPoint] = {}
        self._instances: dict[tuple[Hosts, Ordinal, int], Instance] = {}
        self._group_of: dict[tuple[Hosts, Ordinal], dict[int, Hosts]] = {}

    def call(self, hosts: Hosts, ordinal: Ordinal, rank: int, facts: CallFacts) -> CallHandle:
        """Return the part that *rank* of a group has in a call, and all who do as it does.

        Args:
            hosts: the ranks of the group, by number in the run.
            ordinal: tells groups, and communicators, of the same hosts apart.
            rank: within the group.
            facts: of the call.

        Raises:
            NotSupportedError: a transport that goes on only when a rank calls.
        """
        if self._transport_model.progress == "calls":
            raise NotSupportedError(
                f"transport model {self._transport_model.name!r} on a GPU: collectives of a GPU go on by "
                "themselves, on a stream; take transport_model='nccl', or a CPU's model of computation"
            )
        return CallHandle(self, hosts, ordinal, facts)

    def meeting_point(self, hosts: Hosts, ordinal: Ordinal) -> MeetingPoint:
        """Return where the ranks of a group meet: their last calls, and whom they wait for."""
        key = hosts, ordinal
        if key not in self._own_points:
            overhead = self._scenario.rank_overhead(self._rank_overhead, hosts)
            meeting_point = MeetingPoint(
                self._network, hosts, overhead, self._delay_ps, self._transport_model
            )
            meeting_point.is_calm = self._is_calm
            self._own_points[key] = self._meeting_points["on streams", *key] = meeting_point
        return self._own_points[key]

    def begin(
        self, hosts: Hosts, ordinal: Ordinal, facts: CallFacts, ranks: Sequence[int], through: Through
    ) -> None:
        """Engine: let *ranks* come to the call now, each to that of its own group."""
        for group, members in self._by_group(hosts, ordinal, ranks):
            key = group, ordinal, facts.call.fingerprint()
            instance = self._instances.get(key)
            if instance is None:
                meeting_point = self.meeting_point(group, ordinal)
                instance = Instance(meeting_point, facts, partial(self._forget, key))
                self._instances[key] = instance
            instance.begin(members, facts, through)

    def _forget(self, key: tuple[Hosts, Ordinal, int]) -> None:
        del self._instances[key]

    def note_waiting(self) -> None:
        """Let the meeting points know which ranks are in a call and not through, for a verdict."""
        for instance in self._instances.values():
            instance.note_waiting()

    def _by_group(
        self, hosts: Hosts, ordinal: Ordinal, ranks: Sequence[int]
    ) -> Iterator[tuple[Hosts, list[int]]]:
        """Yield the group of *ranks* with them; of sibling groups each that has some of them."""
        group_of = self._group_of.setdefault((hosts, ordinal), dict.fromkeys(hosts, hosts))
        if any(rank not in group_of for rank in ranks):
            groups = self.siblings.partition(hosts, ordinal[0])
            group_of = {rank: group for group in groups for rank in group}
            self._group_of[hosts, ordinal] = group_of
        members: dict[Hosts, list[int]] = {}
        for rank in ranks:
            if rank not in group_of:
                raise NotSupportedError(f"rank {rank}: in no group made together with that of ranks {hosts}")
            members.setdefault(group_of[rank], []).append(rank)
        yield from members.items()


class CallHandle:
    """One call as its callers have it; a `collectives.virtual.streams` group call."""

    def __init__(self, calls: GroupCalls, hosts: Hosts, ordinal: Ordinal, facts: CallFacts) -> None:
        self.facts = facts
        self._calls = calls
        self._hosts = hosts
        self._ordinal = ordinal

    def begin(self, ranks: Sequence[int], through: Through) -> None:
        """Engine: let *ranks*, by number in the run, come to this call now, each to that of its own group.

        Args:
            ranks: the caller's rank, and all who do as it does.
            through: called with those that are through, at that instant, once for each rank.

        Raises:
            NotSupportedError: a rank is in no group that was made together with the caller's.
        """
        self._calls.begin(self._hosts, self._ordinal, self.facts, ranks, through)
