"""Group calls: how long collectives and messages take, by sizes alone, all members and siblings in flight.

Ranks on a GPU exchange their data apart from time, and time apart from data.  What is timed here is a
`Call` of a group: its messages, as large as the program makes them, on the network that all ranks share.  A
rank begins it when its communication stream comes to it, and is told when it is through.  Ranks that do the
same are one to whoever calls: each of *ranks* takes part in the call of its own group, be that the group of
the caller or a sibling of it (`collectives.virtual.group_calls.family`).

    calls         the calls of one run (open first)
    family        groups that were made together, as one array of ranks, and what a rank says of a call
    timing        calls alone on their links, and calls that meet
    family_call   who has come to one call, and who is through
    footprint     the links that the messages of a program cross, and which calls hold which
    alone         calls that meet nobody, worked out at once and remembered
    congestion    calls that meet, message by message
    on_network    the messages of a call of one group; also on the run's network, where links change
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from collectives.errors import NotSupportedError
from collectives.execution.blame import spell_ranks
from collectives.execution.call import Call
from collectives.execution.transport_model import IDEAL, TransportModel
from collectives.timing.floor import wire_ps
from collectives.timing.ranks.meeting_point import MeetingPoint
from collectives.virtual.folding.classes import MembersDiffer
from collectives.virtual.folding.partitions import Hosts
from collectives.virtual.group_calls.alone import CallsAlone
from collectives.virtual.group_calls.family import CallFacts, Family, Ordinal
from collectives.virtual.group_calls.on_network import Instance
from collectives.virtual.group_calls.timing import MAX_CARRIED, MAX_MESSAGES, FamilyTiming
from collectives.virtual.streams.score import Through
from sim.network import Network
from sim.scenario import Scenario
from sim.scenario.conditions import Jitter
from sim.scenario.rank_overhead import RankOverhead
from sim.units import Int64Array, format_time


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
        at_once: work out calls that meet no others at once, where it is calm; else each message goes over
            *network*, which takes the same time in the run, and longer to find out.

    Attributes:
        siblings: returns all groups made together with one, itself among them; by default that alone.
    """

    def __init__(
        self,
        scenario: Scenario,
        network: Network,
        meeting_points: MutableMapping[Any, MeetingPoint],
        rank_overhead: RankOverhead | None = None,
        transport_model: TransportModel = IDEAL,
        delay_ps: Callable[[int, int], int] | None = None,
        is_calm: bool = True,
        at_once: bool = True,
    ) -> None:
        self.siblings: Callable[[Hosts, int], Sequence[Hosts]] = lambda hosts, ordinal: (hosts,)
        self._scenario = scenario
        self._network = network
        self._meeting_points = meeting_points
        self._rank_overhead = rank_overhead or RankOverhead()
        self._transport_model = transport_model
        self._delay_ps = delay_ps
        self._is_calm = is_calm
        has_jitter = any(isinstance(condition, Jitter) for condition in scenario.conditions)
        self._timing: FamilyTiming | None = None
        if at_once and is_calm and not has_jitter and transport_model.progress == "itself":
            alone = CallsAlone(scenario, self._rank_overhead, transport_model)
            self._timing = FamilyTiming(network.env, alone)
        self._wires: dict[Hashable, tuple[Hosts, int]] = {}
        self._own_points: dict[tuple[Hosts, Ordinal], MeetingPoint] = {}
        self._instances: dict[tuple[Hosts, Ordinal, int], Instance] = {}
        self._families: dict[tuple[Hosts, Ordinal], Family] = {}
        self._family_of: dict[tuple[int, Ordinal], tuple[Hosts, Family]] = {}

    def call(self, hosts: Hosts, ordinal: Ordinal, facts: CallFacts) -> CallHandle:
        """Return a call of a group, as one of its members has it and all who do as it does.

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
            model = self._transport_model
            meeting_point = MeetingPoint(self._network, hosts, overhead, self._delay_ps, model)
            meeting_point.is_calm = self._is_calm
            self._own_points[key] = self._meeting_points["on streams", *key] = meeting_point
        return self._own_points[key]

    def wire_ps(self, hosts: Hosts, call: Call, nbytes: int) -> int:
        """Return what links take for the bytes of *call* among *hosts* alone, whatever the algorithm.

        Parts of any size count as if they were equal.
        """
        key = id(hosts), call.collective, call.root, call.lane, nbytes
        if key not in self._wires:
            topology = self._scenario.topology
            if call.lane is not None:
                pair = hosts[call.lane[0]], hosts[call.lane[1]]
                time_ps = wire_ps("broadcast", nbytes, topology, pair)
            else:
                time_ps = wire_ps(call.collective, nbytes, topology, hosts, call.root or 0)
            self._wires[key] = hosts, time_ps
        return self._wires[key][1]

    @property
    def link_bytes(self) -> Int64Array:
        """What has crossed each link without the network of the run, int64 of shape (num_links,)."""
        if self._timing is None:
            return np.zeros(self._scenario.topology.num_links, dtype=np.int64)
        return self._timing.link_bytes

    def notices(self) -> Iterator[str]:
        """Yield what was assumed of calls that met on links."""
        overlaps = {} if self._timing is None else self._timing.overlaps
        if overlaps:
            met = "; ".join(
                f"{one} beside {other}, {times}×, {format_time(time_ps)} together"
                for (one, other), (times, time_ps) in overlaps.items()
            )
            yield (
                f"timed one by one though they shared links, so too fast, as more than {MAX_MESSAGES} "
                f"messages were under way, or {MAX_CARRIED} in all: {met}"
            )

    def note_waiting(self) -> None:
        """Let the meeting points know which ranks are in a call and not through, for a verdict."""
        for (hosts, ordinal, _), instance in self._instances.items():
            self._note_waiting(hosts, ordinal, instance.facts.call, instance.waiting())
        for family_call, ordinal in self._timing.unfinished() if self._timing is not None else ():
            for hosts, ranks in family_call.waiting():
                self._note_waiting(hosts, ordinal, family_call.facts.call, ranks)

    def _note_waiting(self, hosts: Hosts, ordinal: Ordinal, call: Call, ranks: Sequence[int]) -> None:
        """Let *ranks* of a group wait in *call*; of several calls in a lane the oldest counts."""
        waiting = self.meeting_point(hosts, ordinal).waiting
        for rank in ranks:
            known = waiting.setdefault(rank, call)
            if known.lane == call.lane and known.sequence > call.sequence:
                waiting[rank] = call

    def begin(
        self, hosts: Hosts, ordinal: Ordinal, facts: CallFacts, ranks: Sequence[int], through: Through
    ) -> None:
        """Engine: let *ranks* come to the call now, each to that of its own group."""
        rest = tuple(ranks)
        family = self._family(hosts, ordinal)
        while True:
            here = self._members(family, facts, rest)
            self._begin(family, ordinal, facts, here, through)
            if len(here) == len(rest):
                return
            begun = set(here)
            rest = tuple(rank for rank in rest if rank not in begun)
            family = self._family_with(rest, hosts, ordinal)

    def _members(self, family: Family, facts: CallFacts, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """Return those of *ranks* that are in *family*.

        Raises:
            MembersDiffer: for one of them a message is another.
        """
        places = family.places(ranks)
        if (places < 0).any():
            ranks = tuple(rank for rank, place in zip(ranks, places.tolist(), strict=True) if place >= 0)
            places = family.places(ranks)
        lane = facts.call.lane
        if lane is not None and ranks:
            positions = dict(zip(ranks, (places % family.group_size).tolist(), strict=True))
            first = positions[ranks[0]]
            if first not in lane[:2] or set(positions.values()) != {first}:
                raise MembersDiffer(f"{facts.call}: they pass other messages in their groups", positions.get)
        return ranks

    def _begin(
        self, family: Family, ordinal: Ordinal, facts: CallFacts, ranks: tuple[int, ...], through: Through
    ) -> None:
        if facts.delay_ps:
            at_once, delay_ps = replace(facts, delay_ps=0), facts.delay_ps

            def earlier(ranks: Sequence[int], met_ps: int) -> None:
                through(ranks, met_ps - delay_ps)

            event = self._network.env.timeout(delay_ps)
            event.callbacks.append(lambda _: self._begin(family, ordinal, at_once, ranks, earlier))
            return
        if self._timing is not None:
            self._timing.begin(family, ordinal, facts, ranks, through)
            return
        groups = family.places(ranks) // family.group_size
        for number in np.unique(groups).tolist():
            own = [rank for rank, group in zip(ranks, groups.tolist(), strict=True) if group == number]
            key = family.groups[number], ordinal, facts.call.fingerprint()
            instance = self._instances.get(key)
            if instance is None:
                meeting_point = self.meeting_point(*key[:2])
                instance = Instance(meeting_point, facts, partial(self._forget, key))
                self._instances[key] = instance
            instance.begin(own, facts, through)

    def _forget(self, key: tuple[Hosts, Ordinal, int]) -> None:
        del self._instances[key]

    def _family(self, hosts: Hosts, ordinal: Ordinal) -> Family:
        """Return the family that the group of *hosts* is in; it stays in that."""
        known = self._family_of.get((id(hosts), ordinal))
        if known is not None:
            return known[1]
        if (hosts, ordinal) not in self._families:
            groups = self.siblings(hosts, ordinal[0])
            family = Family([group for group in groups if (group, ordinal) not in self._families])
            self._families |= {(group, ordinal): family for group in family.groups}
        family = self._families[hosts, ordinal]
        self._family_of[id(hosts), ordinal] = hosts, family
        return family

    def _family_with(self, ranks: tuple[int, ...], hosts: Hosts, ordinal: Ordinal) -> Family:
        """Return the family of the first of *ranks*, which are in groups made later than that of *hosts*.

        Raises:
            MembersDiffer: it is in none that was made together with that of *hosts*.
        """
        groups = self.siblings(hosts, ordinal[0])
        for group in groups:
            if ranks[0] in group:
                return self._family(group, ordinal)
        known = {rank for group in groups for rank in group}
        why = f"rank {ranks[0]} is in no group made together with that of {spell_ranks(hosts)}"
        raise MembersDiffer(why, known.__contains__)


@dataclass(eq=False)
class CallHandle:
    """One call as its callers have it; a `collectives.virtual.streams.player.GroupCall`."""

    _calls: GroupCalls
    hosts: Hosts
    ordinal: Ordinal
    facts: CallFacts
    objects: int | None = None

    def begin(self, ranks: Sequence[int], through: Through) -> None:
        """Engine: let *ranks*, by number in the run, come to this call now, each to that of its own group.

        Args:
            ranks: the caller's rank, and all who do as it does.
            through: called with those that are through, at that instant, once for each rank.

        Raises:
            MembersDiffer: they do not do the same: one is in no group that was made together with the
                caller's, or passes another message in its group.
        """
        self._calls.begin(self.hosts, self.ordinal, self.facts, ranks, through)

    def __str__(self) -> str:
        return str(self.facts.call)
