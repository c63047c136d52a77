"""A grid that closes in each of its dimensions.

Routes follow the dimensions in order, in each the shorter way round (dimension-order routing:
Dally and Towles, *Principles and Practices of Interconnection Networks*, section 8.4.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from sim.errors import TopologyError
from sim.topology.layout import Links, NetworkLayout
from sim.topology.parameters import Bandwidth, Latency, Shape
from sim.topology.routing import Cut, Ranks, Wiring, choose, rank_names
from sim.topology.sharing_table import SharingArgument
from sim.units import Int64Array, parse_count


def torus(
    *,
    shape: Shape,
    bandwidth: Bandwidth,
    sharing: SharingArgument = None,
    latency: Latency,
    name: str = "torus",
) -> NetworkLayout:
    """Return a grid of ranks that is closed to a ring in each dimension.

    Args:
        shape: sizes of the dimensions, any number of them; ranks are numbered row by row.
        bandwidth: of each link and direction.
        sharing: what flows get of each link, as for `switch`.
        latency: of each link.
        name: for people.

    Messages go along the first dimension, then the second, and so on; see `TorusRouting`.
    Errors as for `switch`.
    """
    if not isinstance(shape, list | tuple) or not shape:
        raise TopologyError(f"shape: expected the sizes of the dimensions, such as (4, 4, 4), got {shape!r}")
    routing = TorusRouting(tuple(parse_count(size, "shape") for size in shape))
    links = Links.read(routing.num_links, bandwidth, latency, sharing)
    return NetworkLayout(name, routing.num_ranks, 1, [links], routing)


@dataclass(frozen=True)
class TorusRouting:
    """Every rank has a link to either neighbour in each dimension.

    The rank at coordinates (x, y, …) is their row-major number.  A message moves along the first
    dimension, then the second, and so on, in each the shorter way round, on a tie upwards.

    Links, by dimension: of rank r to the next higher coordinate first + ``r``, to the next lower
    first + ``num_ranks + r``.  In a dimension of size 2 there is only the first kind, one link each
    way; in one of size 1 there are none.

    Attributes:
        shape: sizes of the dimensions.
    """

    shape: tuple[int, ...]

    @cached_property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return prod(self.shape)

    @cached_property
    def num_links(self) -> int:
        """Number of directed links."""
        return sum(self.num_ranks * min(size - 1, 2) for size in self.shape)

    @cached_property
    def _dimensions(self) -> list[tuple[int, int, int]]:
        """Return size, stride in rank numbers, and first link of each dimension that has links."""
        found, first, stride = [], 0, self.num_ranks
        for size in self.shape:
            stride //= size
            if size > 1:
                found.append((size, stride, first))
            first += self.num_ranks * min(size - 1, 2)
        return found

    by_channel = False

    def walk(self, source: Ranks, destination: Ranks, channel: Ranks = 0) -> Iterator[Ranks]:
        """Yield the links of one dimension after another."""
        corner = source
        for size, stride, first in self._dimensions:
            here, there = source // stride % size, destination // stride % size
            ahead = (there - here) % size
            up = 2 * ahead <= size
            distance = choose(up, ahead, size - ahead)
            direction, links = choose(up, 1, -1), choose(up, first, first + self.num_ranks)
            corner = corner - here * stride
            longest = int(distance.max(initial=0)) if isinstance(distance, np.ndarray) else distance
            for step in range(longest):
                link = links + corner + (here + direction * step) % size * stride
                yield choose(step < distance, link, -1)
            corner = corner + there * stride

    def link_name(self, link: int) -> str:
        """Return for example ``rank 3 to 4``."""
        tail, head = self._end(np.array([link]))
        return f"rank {tail[0]} to {head[0]}"

    def wiring(self) -> Wiring:
        """Return the ranks; there are no switches."""
        return Wiring(tuple(rank_names(self.num_ranks)), *self._end(np.arange(self.num_links)))

    def _end(self, links: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the ranks at which *links* begin and end."""
        tail = links % self.num_ranks
        head = tail.copy()
        for size, stride, first in self._dimensions:
            block = (links - first) // self.num_ranks
            mine = (block >= 0) & (block < min(size - 1, 2))
            here = tail // stride % size
            neighbour = tail + ((here + 1 - 2 * block) % size - here) * stride
            head = np.where(mine, neighbour, head)
        return tail, head

    def cuts(self) -> list[Cut]:
        """Return the cut into halves along each dimension, the longest first, and that around each rank."""
        tail, head = self._end(np.arange(self.num_links))
        ranks = np.arange(self.num_ranks)
        halves = []
        for size, stride, _ in sorted(self._dimensions, reverse=True):
            group = (ranks // stride % size >= (size + 1) // 2).astype(np.int64)
            crossing = [np.flatnonzero((group[tail] == here) & (group[head] == 1 - here)) for here in (0, 1)]
            out = np.stack(crossing)
            halves.append(Cut("half", group, out, out[::-1]))
        order_out, order_in = np.argsort(tail, kind="stable"), np.argsort(head, kind="stable")
        per_rank = len(tail) // self.num_ranks
        rank = Cut("rank", ranks, *(o.reshape(self.num_ranks, per_rank) for o in (order_out, order_in)))
        return [*halves, rank]
