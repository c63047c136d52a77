"""Capacities: what links carry, by how many flows are on them and whether flows come the other way.

The sharing tables of a topology (`sim.topology.sharing_table`) are read here alone, link by link for flows
and as arrays for coflows.  Without tables a link carries its bandwidth, whoever is on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from sim.network.flow import rate_of
from sim.topology import Topology
from sim.topology.link_sharing import LinkSharing
from sim.topology.sharing_table import WHOLE, Sharing
from sim.units import Int64Array


class Capacities:
    """What each link of a topology carries.

    Attributes:
        bandwidth: of each link, bytes/s, of which flows get parts.
    """

    def __init__(self, topology: Topology) -> None:
        self.bandwidth: list[int] = topology.link_bandwidth.tolist()
        sharing = topology.sharing
        self._tables = (
            None if sharing is None else [sharing.tables[number] for number in sharing.table.tolist()]
        )
        self._opposite = [] if sharing is None else sharing.opposite.tolist()

    @property
    def depend_on_flows(self) -> bool:
        """Whether flows get less than all of some link."""
        return self._tables is not None

    def add(self, bandwidth: int) -> None:
        """Add a link of which flows get all."""
        self.bandwidth.append(bandwidth)
        if self._tables is not None:
            self._tables.append(WHOLE)
            self._opposite.append(-1)

    def opposite(self, link: int) -> int:
        """Return the link back over the same cable, -1 where there is none or it does not matter."""
        return self._opposite[link] if self._tables is not None else -1

    def alone(self) -> list[int]:
        """Return what each link carries of one flow while none goes the other way, in units of rates."""
        if self._tables is None:
            return [rate_of(bandwidth) for bandwidth in self.bandwidth]
        return [self.of(link, 1, False) for link in range(len(self.bandwidth))]

    def of(self, link: int, flows: int, both_ways: bool) -> int:
        """Return what *link* carries with so many flows on it, in units of rates."""
        if self._tables is None:
            return rate_of(self.bandwidth[link])
        return shared_rate(self._tables[link], self.bandwidth[link], flows, both_ways)

    def among(self, routes: Iterable[tuple[int, ...]]) -> dict[int, int]:
        """Return what each link carries that flows over *routes* cross, if there are no others."""
        on = Counter(link for route in routes for link in route)
        return {link: self.of(link, flows, self.opposite(link) in on) for link, flows in on.items()}


@lru_cache(maxsize=4096)
def shared_rate(table: Sharing, bandwidth: int, flows: int, both_ways: bool) -> int:
    """Return what *flows* get together of a link of *bandwidth* bytes/s, in units of rates.

    Without flows it is what one would get.
    """
    return rate_of(table.bandwidth(bandwidth, max(1, flows), both_ways))


@dataclass(frozen=True, eq=False)
class LinkCapacities:
    """What links carry, as arrays with one entry more than links, which stands for no link; `of` makes it.

    Attributes:
        bandwidth: bytes/s of each link; no link is unlimited.
        sharing: the sharing tables of links, if there are some; flows get all of no link.
    """

    bandwidth: Int64Array
    sharing: LinkSharing | None

    @classmethod
    def of(cls, topology: Topology) -> LinkCapacities:
        """Return what the links of *topology* carry."""
        bandwidth = np.append(topology.link_bandwidth, np.iinfo(np.int64).max)
        return cls(bandwidth, topology.sharing and topology.sharing.with_whole(1))

    @property
    def num_links(self) -> int:
        """How many links there are; the number that stands for no link."""
        return len(self.bandwidth) - 1

    @cached_property
    def alone(self) -> Int64Array:
        """What one message gets of each link while none goes the other way, in bytes/s."""
        if self.sharing is None:
            return self.bandwidth
        table = self.sharing.table
        alone = LinkSharing(self.sharing.tables, table, np.full_like(table, -1))
        return alone.bandwidths(self.bandwidth, np.ones_like(table))

    @cached_property
    def opposite(self) -> Int64Array | None:
        """The link back over the same cable, or no link; None where directions do not mind each other."""
        if self.sharing is None or (self.sharing.opposite < 0).all():
            return None
        return np.where(self.sharing.opposite < 0, self.num_links, self.sharing.opposite)

    @cached_property
    def cables(self) -> Int64Array | None:
        """One number for the two links of each cable; None as for `opposite`."""
        return None if self.opposite is None else np.minimum(np.arange(len(self.opposite)), self.opposite)

    def are_shared(self, links: Int64Array) -> bool:
        """Return whether messages over *links*, shape (m, h), meet on a link or a cable."""
        on = self.cables[links] if self.cables is not None else links
        return bool((np.bincount(on[on < self.num_links]) > 1).any())

    def with_opposites(self, links: Int64Array) -> Int64Array:
        """Return *links*, shape (m, h), and beside them their opposites, where these matter."""
        return links if self.opposite is None else np.concatenate([links, self.opposite[links]], axis=1)

    def tables_of(self, links: Int64Array) -> list[Sharing]:
        """Return the sharing tables of *links*."""
        if self.sharing is None:
            return [WHOLE] * len(links)
        return [self.sharing.of_link(link) for link in links.tolist()]
