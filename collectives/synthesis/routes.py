"""Routes between all ranks of a network at once, with what their links carry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sim.topology import Topology
from sim.topology.routing import DetourRouting
from sim.units import Int64Array

Float64Array: TypeAlias = npt.NDArray[np.float64]


def working_bandwidth(topology: Topology) -> Int64Array:
    """Return the bytes per second of each link; 0 of those that routes avoid as they have failed."""
    bandwidth = topology.link_bandwidth.copy()
    if isinstance(topology.routing, DetourRouting):
        bandwidth[list(topology.routing.avoided)] = 0
    return bandwidth


@dataclass(frozen=True, eq=False)
class Routes:
    """The links that a message crosses between any two of p ranks.

    Attributes:
        links: from rank u to rank v, int64 of shape (p, p, h); the number of links stands where a route is
            shorter than h, and on the diagonal.
        capacity: of each link, bytes per second.
        link_latency: of each link, picoseconds.
    """

    links: Int64Array
    capacity: Float64Array
    link_latency: Int64Array

    @classmethod
    def of(cls, topology: Topology) -> Routes:
        """Return the routes of *topology*, whose ranks are its first places."""
        num_ranks = topology.num_ranks
        source, destination = np.nonzero(~np.eye(num_ranks, dtype=bool))
        found = topology.routes(source, destination)
        links = np.full((num_ranks, num_ranks, found.shape[1]), topology.num_links, dtype=np.int64)
        links[source, destination] = np.where(found < 0, topology.num_links, found)
        return cls(links, topology.link_bandwidth.astype(np.float64), topology.link_latency)

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return len(self.links)

    @cached_property
    def latency(self) -> Int64Array:
        """Picoseconds from rank to rank, int64 of shape (p, p)."""
        delays: Int64Array = np.append(self.link_latency, 0)[self.links].sum(axis=2)
        return delays

    def reversed(self) -> Routes:
        """Return the routes of messages that go the other way: from v to u where these go from u to v."""
        return replace(self, links=self.links.transpose(1, 0, 2))

    def weights(self, prices: Float64Array) -> Float64Array:
        """Return what the routes cost, shape (p, p), where links cost *prices*; infinity on the diagonal."""
        costs: Float64Array = np.append(prices, 0.0)[self.links].sum(axis=2)
        np.fill_diagonal(costs, np.inf)
        return costs
