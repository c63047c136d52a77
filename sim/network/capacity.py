"""Capacities: what links carry, by how many flows are on them and whether flows come the other way.

The sharing tables of a topology (`sim.topology.sharing_table`) are read here alone.  Without tables a link
carries its bandwidth, whoever is on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from sim.network.flow import rate_of
from sim.topology import Topology
from sim.topology.sharing_table import WHOLE, Sharing


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

    def table(self, link: int) -> Sharing:
        """Return the sharing table of *link*."""
        return WHOLE if self._tables is None else self._tables[link]

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
