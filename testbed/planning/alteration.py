"""Alteration of a point: more of a resource, or nothing of what costs time.

    bandwidth   links of some groups carry more
    latency     links are quicker or slower
    compute     a rank computes faster or slower
    unshared    each rank sends over its own copies of the links, without sharing tables
    without     terms of `ddp.step.inefficiencies` are not counted

Groups are links that are bought together, under the names of the fields of network files.  Algorithms stay
those that were chosen without the alteration.  A closed form, which knows of no links, has the parts of its
times altered, once it has chosen: latency, and the rest where all links carry more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from collectives.errors import NotSupportedError
from ddp import Profile
from ddp.step.communication import FormulaParts
from sim.topology import Topology
from sim.topology.routing import UnsharedRouting
from sim.units import Int64Array
from testbed.studies.network_survey import kind_of

ALL_LINKS = "all links"
"""The group of every link."""

FIELDS: Mapping[tuple[str, ...], str] = {
    ("node switch", "rank"): "intra_bandwidth",
    ("node NIC", "switch"): "nic_bandwidth",
    ("leaf", "node NIC"): "nic_bandwidth",
    ("leaf", "spine"): "uplink_bandwidth",
}
"""The field of a network file that says what such links carry, where not all have one."""

UNLIMITED = Fraction(10**6)
"""How many times as much an unlimited link carries: what takes a second otherwise takes a microsecond."""
_MOST = 2**62  # bytes/s, which 64 bits hold
_MOST_LINKS = 2**23


def link_groups(topology: Topology) -> dict[str, Int64Array]:
    """Return the numbers of the links of each group, by its name.

    Links that join ends of the same kinds are a group.  It is named after the field of the network's file
    that gives its bandwidth, or after its ends, such as ``gpu to nvswitch``.
    """
    wiring = topology.routing.wiring()
    kinds = [kind_of(name) for name in wiring.names]
    ends = [
        tuple(sorted((kinds[tail], kinds[head])))
        for tail, head in zip(wiring.tail.tolist(), wiring.head.tolist(), strict=True)
    ]
    known = sorted(set(ends))
    number = {pair: place for place, pair in enumerate(known)}
    of = np.array([number[pair] for pair in ends], dtype=np.int64)
    return {_name(pair, len(known)): np.flatnonzero(of == place) for pair, place in number.items()}


def _name(ends: tuple[str, ...], num_groups: int) -> str:
    alone = "bandwidth" if num_groups == 1 or ends == ("leaf", "rank") else " to ".join(ends)
    return FIELDS.get(ends, alone)


@dataclass(frozen=True)
class Alteration:
    """What is otherwise than in the point itself; by default nothing.

    Attributes:
        bandwidth: how many times as much the links of a group carry (see `testbed.planning.alteration`).
        latency: how many times as long links are in latency.
        compute: how many times as long a rank computes.
        unshared: whether no rank's messages meet those of another on a link.
        without: names of inefficiencies that are not counted.
    """

    bandwidth: tuple[tuple[str, Fraction], ...] = ()
    latency: Fraction = Fraction(1)
    compute: Fraction = Fraction(1)
    unshared: bool = False
    without: tuple[str, ...] = ()

    def of_topology(self, topology: Topology) -> Topology:
        """Return *topology* as it is then.

        Raises:
            NotSupportedError: it has no such group of links, or too many links would be needed.
        """
        for group, factor in self.bandwidth:
            topology = _with_bandwidth(topology, group, factor)
        if self.latency != 1:
            latency = topology.link_latency * self.latency.numerator // self.latency.denominator
            topology = replace(topology, link_latency=latency)
        return _unshared(topology) if self.unshared else topology

    def of_formula(self) -> FormulaParts:
        """Return how long the parts of a closed form's times are then.

        Raises:
            NotSupportedError: it concerns single links.
        """
        if self.unshared or any(group != ALL_LINKS for group, _ in self.bandwidth):
            raise NotSupportedError("a closed form knows of no links")
        return FormulaParts(
            self.latency, 1 / math.prod((factor for _, factor in self.bandwidth), start=Fraction(1))
        )

    def of_profile(self, profile: Profile) -> Profile:
        """Return *profile* as a rank computes it then."""
        return profile if self.compute == 1 else profile.slowed(self.compute)

    def of_inefficiencies(self, terms: Sequence[str]) -> tuple[str, ...]:
        """Return which of the inefficiencies *terms*, each with its parameters, are counted then."""
        return tuple(term for term in terms if term.partition(":")[0] not in self.without)


AS_IT_IS = Alteration()
"""Nothing is otherwise."""


def _with_bandwidth(topology: Topology, group: str, factor: Fraction) -> Topology:
    if group == ALL_LINKS:
        return replace(topology, link_bandwidth=_scaled(topology.link_bandwidth, factor))
    groups = link_groups(topology)
    if group not in groups:
        raise NotSupportedError(f"{topology.name} has no links {group}; it has {', '.join(groups)}")
    bandwidth = topology.link_bandwidth.copy()
    bandwidth[groups[group]] = _scaled(bandwidth[groups[group]], factor)
    return replace(topology, link_bandwidth=bandwidth)


def _unshared(topology: Topology) -> Topology:
    ranks = topology.num_ranks
    if ranks * topology.num_links > _MOST_LINKS:
        raise NotSupportedError(
            f"contention on {topology.name}: {ranks} copies of {topology.num_links} links are more than "
            f"{_MOST_LINKS}"
        )
    return replace(
        topology,
        link_bandwidth=np.tile(topology.link_bandwidth, ranks),
        link_latency=np.tile(topology.link_latency, ranks),
        routing=UnsharedRouting(topology.routing, topology.num_links, ranks),
        sharing=None,
    )


def _scaled(bandwidths: Int64Array, factor: Fraction) -> Int64Array:
    return np.array([_rate(own, factor) for own in bandwidths.tolist()], dtype=np.int64)


def _rate(bandwidth: int, factor: Fraction) -> int:
    return min(bandwidth * factor.numerator // factor.denominator, _MOST)
