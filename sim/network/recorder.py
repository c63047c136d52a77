"""Loads of links over time, from the exact rates of all flows.

A network that has a recorder tells it of every change of a flow's rate, and of what the flow has carried
at the rate before.  Nothing is sampled: between two changes a link's load is constant.

A link is *saturated* while flows take all that it carries, which with a sharing table is less than its
bandwidth; loads are parts of the bandwidth.  Rates are rounded down (see [Note: fixed point] in
`sim.network.network`), so each flow may leave less than one unit of 2**-256 bytes/s.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from sim.network.capacity import Capacities
from sim.network.flow import amount, rate_of
from sim.topology import Topology
from sim.units import Int64Array

WHOLE = 10**8
"""The load of a link whose bandwidth is all taken in `Recorder.timeline`: 100 % with six decimals."""


class Recorder:
    """The load of the links of *topology*; give it to a `sim.Network` before anything is sent."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        capacities = Capacities(topology)
        self._links = [
            _Link(rate_of(bandwidth), limit)
            for bandwidth, limit in zip(capacities.bandwidth, capacities.alone(), strict=True)
        ]

    def note(self, links: Sequence[int], carried: int, before: int, after: int, now_ps: int) -> None:
        """Note that a flow over *links* goes on at another rate; of rate 0 is one that is not there.

        Args:
            links: that it crosses.
            carried: what it has carried at the rate *before*, in rate times picoseconds.
            before: its rate until now, in units of 2**-256 bytes/s.
            after: its rate from now on.
            now_ps: the time.
        """
        flows = (after > 0) - (before > 0)
        for number in links:
            link = self._links[number]
            link.to(now_ps)
            link.carried += carried
            link.load += after - before
            link.num_flows += flows

    def add_link(self, bandwidth: int) -> None:
        """Record a further link, which the topology does not have."""
        self._links.append(_Link(rate_of(bandwidth), rate_of(bandwidth)))

    def change(self, link: int, bandwidth: int, now_ps: int) -> None:
        """Note that *link* carries *bandwidth* bytes/s from now on."""
        self._links[link].to(now_ps)
        self._links[link].capacity = rate_of(bandwidth)

    def limit(self, link: int, rate: int, now_ps: int) -> None:
        """Note that flows get no more than *rate* of *link* from now on, in units of 2**-256 bytes/s."""
        self._links[link].to(now_ps)
        self._links[link].limit = rate

    @property
    def link_bytes(self) -> Int64Array:
        """Whole bytes that each link has carried for flows up to their last change of rate."""
        return np.array([link.carried // amount(1) for link in self._links], dtype=np.int64)

    @property
    def saturated_ps(self) -> Int64Array:
        """How long each link was saturated, in picoseconds."""
        return np.array([link.saturated_ps for link in self._links], dtype=np.int64)

    def timeline(self, link: int) -> list[tuple[int, int]]:
        """Return the load of *link* over time: from when on (picoseconds), and how much of `WHOLE`.

        Loads that are not whole are rounded down.
        """
        return self._links[link].timeline()


class _Link:
    __slots__ = ("capacity", "carried", "limit", "load", "num_flows", "points", "saturated_ps", "since_ps")

    def __init__(self, capacity: int, limit: int) -> None:
        self.capacity, self.limit = capacity, limit
        self.carried = self.load = self.num_flows = self.since_ps = self.saturated_ps = 0
        self.points: list[tuple[int, int]] = []

    def to(self, now_ps: int) -> None:
        """Keep the load that the link had from the last change until now."""
        if now_ps > self.since_ps:
            self.points.append((self.since_ps, self._filled()))
            self.saturated_ps += (now_ps - self.since_ps) * self._takes_all_of(self.limit)
            self.since_ps = now_ps

    def _takes_all_of(self, rate: int) -> bool:
        return self.num_flows > 0 and rate - self.load < self.num_flows

    def _filled(self) -> int:
        return WHOLE if self._takes_all_of(self.capacity) else self.load * WHOLE // self.capacity

    def timeline(self) -> list[tuple[int, int]]:
        points = [*self.points, (self.since_ps, self._filled())]
        return points[:1] + [new for old, new in pairwise(points) if new[1] != old[1]]
