"""Links that single connections cross besides the network's, such as the thread blocks that carry them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, cast

import numpy as np

from sim.topology.routing.protocol import Cut, Ranks, Routing, Wiring, one_pair

Connection: TypeAlias = tuple[int, int, int]
"""Source, destination and channel."""


class Crossed(NamedTuple):
    """The channel by which the way of a connection is found, and its further links, -1 for none."""

    channel: int
    first: int
    last: int


@dataclass(frozen=True)
class FurtherLinks:
    """Links without latency that connections cross, one at their start and one at their end.

    Attributes:
        names: of the links, for people.
        bandwidth: bytes/s of each.
        crossed: by connections; others cross none.
    """

    names: tuple[str, ...]
    bandwidth: int
    crossed: Mapping[Connection, Crossed]


@dataclass(frozen=True)
class FurtherLinksRouting:
    """Connections cross further links; their way between these is the usual one.

    Further link i has number ``num_links + i``.

    Attributes:
        base: the routing without them; its links keep their numbers.
        num_links: of *base*.
        further: the links, and who crosses them.
    """

    base: Routing
    num_links: int
    further: FurtherLinks

    @property
    def by_channel(self) -> bool:
        """Whether connections of two ranks may take different ways."""
        return True

    def walk(self, source: Ranks, destination: Ranks, channel: Ranks = 0) -> Iterator[Ranks]:
        """Yield a further link, those of the base, a further link."""
        if not isinstance(source, np.ndarray):
            yield from one_pair(self, source, cast(int, destination), cast(int, channel))
            return
        connections = np.stack(np.broadcast_arrays(source, destination, channel), axis=1).tolist()
        crossed = [self.further.crossed.get((a, b, c), Crossed(c, -1, -1)) for a, b, c in connections]
        numbers, first, last = np.array(crossed, dtype=np.int64).reshape(-1, 3).T
        yield np.where(first >= 0, first + self.num_links, -1)
        yield from self.base.walk(source, destination, numbers)
        yield np.where(last >= 0, last + self.num_links, -1)

    def link_name(self, link: int) -> str:
        """Return the name of a further link, or that of the base."""
        if link < self.num_links:
            return self.base.link_name(link)
        return self.further.names[link - self.num_links]

    def wiring(self) -> Wiring:
        """Return that of the base, in which each further link leads between two vertices of its own."""
        base, names = self.base.wiring(), self.further.names
        ends = len(base.names) + np.arange(2 * len(names)).reshape(-1, 2)
        return Wiring(
            (*base.names, *(f"{name}, {end}" for name in names for end in ("start", "end"))),
            np.concatenate([base.tail, ends[:, 0]]),
            np.concatenate([base.head, ends[:, 1]]),
            base.joins,
        )

    def cuts(self) -> list[Cut]:
        """Return those of the base: what crosses them crosses the same links."""
        return self.base.cuts()
