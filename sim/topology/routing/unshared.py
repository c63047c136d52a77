"""Links that every rank has to itself: what is left of a network when nobody is in another's way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sim.topology.routing.protocol import Cut, Ranks, Routing, Wiring
from sim.units import Int64Array


@dataclass(frozen=True)
class UnsharedRouting:
    """Messages of each rank cross its own copies of the links that they would cross.

    What one rank sends at a time still shares those; what others send is never in its way.  The copy of link
    l that messages from rank r cross has number ``r * num_links + l``.

    Attributes:
        base: the routing whose links are copied.
        num_links: of *base*.
        num_ranks: each of which has a copy of all links.
    """

    base: Routing
    num_links: int
    num_ranks: int

    @property
    def by_channel(self) -> bool:
        """Whether connections of two ranks may take different ways."""
        return self.base.by_channel

    def walk(self, source: Ranks, destination: Ranks, channel: Ranks = 0) -> Iterator[Ranks]:
        """Yield the copies, for *source*, of the links of the base."""
        for link in self.base.walk(source, destination, channel):
            own = source * self.num_links + link
            if isinstance(link, np.ndarray):
                yield np.where(link >= 0, own, -1)
            else:
                yield own if link >= 0 else -1

    def link_name(self, link: int) -> str:
        """Return for example ``node 0 NIC 0 up for rank 3``."""
        rank, own = divmod(link, self.num_links)
        return f"{self.base.link_name(own)} for rank {rank}"

    def wiring(self) -> Wiring:
        """Return that of the base, with as many parallel links as there are ranks."""
        base = self.base.wiring()
        return Wiring(
            base.names, np.tile(base.tail, self.num_ranks), np.tile(base.head, self.num_ranks), base.joins
        )

    def cuts(self) -> list[Cut]:
        """Return those of the base, across which all copies of a link lead."""
        return [
            Cut(cut.name, cut.group_of, self._copies(cut.links_out), self._copies(cut.links_in))
            for cut in self.base.cuts()
        ]

    def _copies(self, links: Int64Array) -> Int64Array:
        ranks = np.arange(self.num_ranks)[None, :, None] * self.num_links
        every = np.where(links[:, None, :] >= 0, links[:, None, :] + ranks, -1)
        return every.reshape(len(links), -1)
