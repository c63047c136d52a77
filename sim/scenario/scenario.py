"""Scenario: a topology under conditions.

A slow rank gets a private link for each of its own, of 1/factor the bandwidth (`PrivateLinksRouting`), so
that max-min sharing limits it and nobody else.  A change of a link changes the private links that go with it.
What carries single connections has links of its own behind these (`FurtherLinksRouting`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import simpy

from sim.errors import ConditionError, TopologyError, UnitError
from sim.network import Network
from sim.network.coflow import CoflowAccelerator
from sim.network.link_events import LinkEvents, OtherTraffic
from sim.network.recorder import Recorder
from sim.scenario.conditions import Background, Condition, Jitter, LinkChange, LinkFailure, Straggler
from sim.scenario.rank_overhead import RankOverhead
from sim.topology import Topology
from sim.topology.placement import check_place
from sim.topology.routing import FurtherLinks, FurtherLinksRouting, Routing
from sim.topology.routing.private import PrivateLinksRouting
from sim.units import Int64Array

C = TypeVar("C", Jitter, Straggler, LinkChange, LinkFailure, Background)


@dataclass(frozen=True)
class Scenario:
    """A topology under conditions; `of` makes one and checks them.

    Attributes:
        base: the topology without them.
        conditions: that hold.
        further: links that single connections cross besides.
    """

    base: Topology
    conditions: tuple[Condition, ...] = ()
    further: FurtherLinks | None = None

    @classmethod
    def of(cls, topology: Topology, conditions: Sequence[Condition] = ()) -> Scenario:
        """Return the scenario.

        Raises:
            ConditionError: something that is no condition, a rank or link that *topology* has not, or two
                conditions of which only one can hold.
        """
        scenario = cls(topology, tuple(conditions))
        for condition in scenario.conditions:
            scenario._check(condition)
        held = Counter(scenario._subjects())
        for subject, times in held.items():
            if times > 1:
                raise ConditionError(f"conditions: {times} for {subject}; give one")
        return scenario

    def _check(self, condition: Condition) -> None:
        match cast(Any, condition):
            case Jitter():
                pass
            case Straggler(rank=rank):
                self._check_rank(rank, condition)
            case LinkChange() | LinkFailure() as of_link:
                self._link(of_link)
            case Background(source=source, destination=destination):
                self._check_rank(source, condition)
                self._check_rank(destination, condition)
                if source == destination:
                    raise ConditionError(f"{condition}: expected two places, got {source} twice")
            case _:
                raise ConditionError(
                    "conditions: expected Jitter, Straggler, LinkChange, LinkFailure or Background, "
                    f"got {condition!r}"
                )

    def _check_rank(self, rank: int, condition: Condition) -> None:
        check_place(rank, self.base, str(condition), ConditionError)

    def _subjects(self) -> Iterator[str]:
        """Yield in words what each condition alone decides."""
        for condition in self.conditions:
            match condition:
                case Jitter():
                    yield "Jitter"
                case Straggler(rank=rank):
                    yield f"Straggler(rank={rank})"
                case LinkChange(at_ps=at_ps):
                    yield f"LinkChange of link {self.base.link_name(self._link(condition))} at {at_ps} ps"
                case LinkFailure():
                    yield f"LinkFailure of link {self.base.link_name(self._link(condition))}"

    def _link(self, condition: LinkChange | LinkFailure) -> int:
        """Return the number of the link.

        Raises:
            ConditionError: there is none.
        """
        try:
            return self.base.link_number(condition.link)
        except TopologyError as error:
            raise ConditionError(f"{condition}: {error}") from None

    def _all(self, kind: type[C]) -> Iterator[C]:
        """Yield the conditions of one *kind*."""
        return (condition for condition in self.conditions if isinstance(condition, kind))

    @property
    def slowest(self) -> Straggler | None:
        """A straggler with the largest factor above 1, if there is one."""
        slow = [one for one in self._all(Straggler) if one.rank in self.factors]
        return max(slow, key=lambda one: one.exact_factor, default=None)

    @cached_property
    def delays_ps(self) -> dict[int, int]:
        """How late ranks are, by place, for those that are."""
        return {int(one.rank): one.delay_ps for one in self._all(Straggler) if one.delay_ps}

    @cached_property
    def factors(self) -> dict[int, Fraction]:
        """How many times as long slow ranks take, by place."""
        return {int(one.rank): one.exact_factor for one in self._all(Straggler) if one.exact_factor != 1}

    @cached_property
    def topology(self) -> Topology:
        """The network as messages see it at first; `base` if no rank is slow and no links are further."""
        slowed, further = self._slowed, self.further
        if further is None:
            return slowed
        number = len(further.names)
        return replace(
            slowed,
            routing=FurtherLinksRouting(slowed.routing, slowed.num_links, further),
            sharing=slowed.sharing and slowed.sharing.with_whole(number),
            link_bandwidth=np.append(slowed.link_bandwidth, np.full(number, further.bandwidth)),
            link_latency=np.append(slowed.link_latency, np.zeros(number, dtype=np.int64)),
        )

    @cached_property
    def _slowed(self) -> Topology:
        """The network with the private links of slow ranks."""
        if not self.factors:
            return self.base
        routing = self._private(self.base.routing)
        bandwidth, latency = self.base.link_bandwidth, self.base.link_latency
        slow = [_part(int(bandwidth[link]), 1 / self.factors[rank]) for rank, link, _ in routing.ways]
        sharing = self.base.sharing
        if sharing is not None:
            sharing = sharing.with_private([(rank, link) for rank, link, _ in routing.ways])
        return replace(
            self.base,
            routing=routing,
            sharing=sharing,
            link_bandwidth=np.append(bandwidth, np.array(slow, dtype=np.int64)),
            link_latency=np.append(latency, np.zeros(len(slow), dtype=np.int64)),
        )

    def _private(self, routing: Routing) -> PrivateLinksRouting:
        return PrivateLinksRouting.around(routing, self.factors)

    def _without(self, links: Collection[int]) -> Routing:
        routing = self.base.without_links(links).routing
        routing = self._private(routing) if self.factors else routing
        return (
            routing
            if self.further is None
            else FurtherLinksRouting(routing, self._slowed.num_links, self.further)
        )

    @property
    def reroutes(self) -> bool:
        """Whether messages may change their way."""
        return any(failure.reroute for failure in self._all(LinkFailure))

    @property
    def has_background(self) -> bool:
        """Whether there is other traffic."""
        return any(self._all(Background))

    @property
    def events_only(self) -> str | None:
        """The first condition that only events can follow, in words, or None."""
        kinds = LinkChange, LinkFailure, Background
        return next((str(condition) for condition in self.conditions if isinstance(condition, kinds)), None)

    def rank_overhead(self, rank_overhead: RankOverhead, hosts: Sequence[int] | Int64Array) -> RankOverhead:
        """Return *rank_overhead* under the conditions, for ranks at the places *hosts*."""
        rank_at = {int(place): rank for rank, place in enumerate(hosts)}
        late = {rank_at[place]: delay for place, delay in self.delays_ps.items() if place in rank_at}
        slow = {rank_at[place]: factor for place, factor in self.factors.items() if place in rank_at}
        jitter = next(self._all(Jitter), None)
        nodes = tuple(int(place) // self.base.ranks_per_node for place in hosts)
        return replace(rank_overhead, jitter=jitter).on_nodes(nodes).with_slow(slow).with_late(late)

    def network(
        self, env: simpy.Environment, recorder: Recorder | None = None, *, accelerated: bool = True
    ) -> Network:
        """Return the network in the virtual time of *env*, which is at its start.

        Args:
            env: its time is in picoseconds.
            recorder: of `topology`, if loads are to be recorded.
            accelerated: whether coflows may be timed as wholes, which changes no time.
        """
        network = Network(env, self.topology, recorder)
        if accelerated:
            network.accelerator = CoflowAccelerator(network)
        events = LinkEvents(network, self._without)
        for change in self._changes():
            events.change(*change)
        for failure in self._all(LinkFailure):
            events.fail(failure.at_ps, self._link(failure), failure.reroute)
        for one in self._all(Background):
            ends = int(one.source), int(one.destination)
            events.add(OtherTraffic(*ends, one.rate, one.nbytes, one.start_ps, one.stop_ps))
        return network

    def _changes(self) -> Iterator[tuple[int, int, int]]:
        """Yield when which link changes to how many bytes/s; with each, the private links that go with it."""
        routing = self._slowed.routing
        ways = routing.ways if isinstance(routing, PrivateLinksRouting) else ()
        for change in self._all(LinkChange):
            link, bandwidth = self._link(change), self._bandwidth(change)
            yield change.at_ps, link, bandwidth
            for number, (rank, other, _) in enumerate(ways, self.base.num_links):
                if other == link:
                    yield change.at_ps, number, _part(bandwidth, 1 / self.factors[rank])

    def _bandwidth(self, condition: LinkChange) -> int:
        return _part(int(self.base.link_bandwidth[self._link(condition)]), condition.exact_factor)

    @cached_property
    def at_best(self) -> Topology:
        """The topology with the largest bandwidth that each link ever has, for what cannot be beaten."""
        bandwidth = self.base.link_bandwidth.copy()
        for change in self._all(LinkChange):
            link = self._link(change)
            bandwidth[link] = max(int(bandwidth[link]), self._bandwidth(change))
        if np.array_equal(bandwidth, self.base.link_bandwidth):
            return self.base
        return replace(self.base, link_bandwidth=bandwidth)

    def mean_bandwidth(self, start_ps: int, end_ps: int) -> npt.NDArray[np.float64] | None:
        """Return the mean bandwidth of each link of `topology` in that time; None if none ever changes."""
        changes: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for at_ps, link, bandwidth in self._changes():
            changes[link].append((at_ps, bandwidth))
        if not changes or start_ps == end_ps:
            return None
        mean = self.topology.link_bandwidth.astype(np.float64)
        for link, steps in changes.items():
            spans = [(0, int(self.topology.link_bandwidth[link])), *sorted(steps), (end_ps, 0)]
            carried = sum(
                bandwidth * max(0, min(until, end_ps) - max(since, start_ps))
                for (since, bandwidth), (until, _) in pairwise(spans)
            )
            mean[link] = carried / (end_ps - start_ps)
        return mean


def _part(bandwidth: int, factor: Fraction) -> int:
    """Return so much of *bandwidth*, rounded down, but no less than 1 byte/s.

    Raises:
        UnitError: it is beyond 63 bits.
    """
    part = max(1, bandwidth * factor.numerator // factor.denominator)
    if part >= 2**63:
        raise UnitError(f"bandwidth: {bandwidth} bytes/s times {factor} is beyond 63 bits")
    return part
