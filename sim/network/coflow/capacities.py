"""Capacities of links as arrays: what coflows need of a topology to be timed as wholes.

Arrays have one entry more than there are links, which stands for no link.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sim.topology import Topology
from sim.topology.link_sharing import LinkSharing
from sim.topology.sharing_table import WHOLE, Sharing
from sim.units import Int64Array


@dataclass(frozen=True, eq=False)
class LinkCapacities:
    """What links carry, by how many messages are on them; `of` makes it.

    Attributes:
        bandwidth: bytes/s of each link; no link is unlimited.
        tables: the sharing tables that there are.
        table: which of them each link has, if there is one other than `WHOLE`.
        opposite: the link back over the same cable, or no link, if there is such a table.
    """

    bandwidth: Int64Array
    tables: tuple[Sharing, ...] = (WHOLE,)
    table: Int64Array | None = None
    opposite: Int64Array | None = None

    @classmethod
    def of(cls, topology: Topology) -> LinkCapacities:
        """Return what the links of *topology* carry."""
        bandwidth = np.append(topology.link_bandwidth, np.iinfo(np.int64).max)
        sharing = topology.sharing
        if sharing is None:
            return cls(bandwidth)
        tables = (*sharing.tables, WHOLE)
        table = np.append(sharing.table, len(sharing.tables))
        if (sharing.opposite < 0).all():
            return cls(bandwidth, tables, table)
        opposite = np.where(sharing.opposite < 0, topology.num_links, sharing.opposite)
        return cls(bandwidth, tables, table, np.append(opposite, topology.num_links))

    @property
    def num_links(self) -> int:
        """How many links there are; the number that stands for no link."""
        return len(self.bandwidth) - 1

    @cached_property
    def alone(self) -> Int64Array:
        """What one message gets of each link while none goes the other way, in bytes/s."""
        if self.table is None:
            return self.bandwidth
        alone = LinkSharing(self.tables, self.table, np.full_like(self.table, -1))
        return alone.bandwidths(self.bandwidth, np.ones_like(self.table))

    @cached_property
    def cables(self) -> Int64Array | None:
        """One number for the two links of each cable; None where directions do not mind each other."""
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
        if self.table is None:
            return [WHOLE] * len(links)
        return [self.tables[number] for number in self.table[links].tolist()]
