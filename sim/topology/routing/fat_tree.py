"""The k-ary fat tree: three levels of equal switches.

Source: Al-Fares, Loukissas and Vahdat, "A scalable, commodity data center network architecture",
SIGCOMM 2008.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sim.topology.routing.hashing import spread
from sim.topology.routing.protocol import Cut, Ranks, Wiring, choose, rank_names


@dataclass(frozen=True)
class FatTreeRouting:
    """With h = k/2: k pods of h edge and h aggregation switches, h·h cores, h ranks an edge switch.

    A message crosses two links under one edge switch, four inside a pod, six between pods.  On its
    way up it takes aggregation switch ``destination % h`` and then that one's core
    ``destination // h % h`` (d-mod-k: Zahavi, JPDC 72(11), 2012: permutations that shift all ranks
    share no link in a full tree), or, with a seed, a path by hash of source and destination (ECMP).

    Links, with R ranks and W = k·h·h: up of rank r is ``r``, down is ``R + r``.  From ``2R`` on come W
    links from edge e to the pod's aggregation j, ``e·h + j``; W from aggregation a to its core i,
    ``a·h + i``; then the same W from cores down, and the same W from aggregations down.  Core i of
    aggregation j of any pod is core ``j·h + i``.

    Attributes:
        num_ranks: number of ranks, which fill the edge switches in order; at most ``k·h·h``.
        k: ports of a switch, even.
        ecmp_seed: of the hash; None: by destination.
    """

    num_ranks: int
    k: int
    ecmp_seed: int | None = None

    @property
    def half(self) -> int:
        """Ports of a switch up, and down: h."""
        return self.k // 2

    @property
    def num_places(self) -> int:
        """Ranks that the tree has room for, and links each way between two levels of switches."""
        return self.k * self.half**2

    def walk(self, source: Ranks, destination: Ranks) -> Iterator[Ranks]:
        """Yield the links up, as far as the two have no switch in common, and down again."""
        h, places = self.half, self.num_places
        up = (
            destination % h**2
            if self.ecmp_seed is None
            else spread(self.ecmp_seed, h**2, source, destination)
        )
        aggregation, core = up % h, up // h

        edge, far_edge = source // h, destination // h
        pod, far_pod = edge // h, far_edge // h
        first = 2 * self.num_ranks

        yield source
        yield choose(edge == far_edge, -1, first + edge * h + aggregation)
        path = aggregation * h + core
        yield choose(pod == far_pod, -1, first + places + pod * h**2 + path)
        yield choose(pod == far_pod, -1, first + 2 * places + far_pod * h**2 + path)
        yield choose(edge == far_edge, -1, first + 3 * places + far_edge * h + aggregation)
        yield self.num_ranks + destination

    def link_name(self, link: int) -> str:
        """Return for example ``rank 3 up``, ``edge 0 to aggregation 1`` or ``core 2 to aggregation 1``."""
        if link < 2 * self.num_ranks:
            return f"rank {link % self.num_ranks} {'down' if link >= self.num_ranks else 'up'}"
        level, number = divmod(link - 2 * self.num_ranks, self.num_places)
        (low, lower), (high, upper) = self._ends(number, level in (1, 2))
        names = f"{low} {lower}", f"{high} {upper}"
        return " to ".join(names if level < 2 else names[::-1])

    def _ends(self, number: Ranks, to_core: bool) -> tuple[tuple[str, Ranks], tuple[str, Ranks]]:
        """Return the lower and the upper end of link *number* between two levels of switches."""
        h = self.half
        if to_core:
            return ("aggregation", number // h), ("core", number % h**2)
        return ("edge", number // h), ("aggregation", number // h**2 * h + number % h)

    def wiring(self) -> Wiring:
        """Return ranks, then ``edge 0`` and so on, ``aggregation 0`` and so on, ``core 0`` and so on."""
        per_level = self.k * self.half
        sizes = {"edge": per_level, "aggregation": per_level, "core": self.half**2}
        first = dict(zip(sizes, np.cumsum([self.num_ranks, per_level, per_level]), strict=True))

        names = (*rank_names(self.num_ranks), *(f"{kind} {n}" for kind in sizes for n in range(sizes[kind])))
        ranks, numbers = np.arange(self.num_ranks), np.arange(self.num_places)
        own_edge = self.num_ranks + ranks // self.half

        (edge, below), (middle, core) = (
            [first[kind] + number for kind, number in self._ends(numbers, to_core)]
            for to_core in (False, True)
        )
        return Wiring(
            names,
            np.concatenate([ranks, own_edge, edge, middle, core, below]),
            np.concatenate([own_edge, ranks, below, core, middle, edge]),
        )

    def cuts(self) -> list[Cut]:
        """Return the cuts around each pod, each edge switch and each rank."""
        h, places = self.half, self.num_places
        ranks = np.arange(self.num_ranks)
        links = 2 * self.num_ranks + np.arange(places)
        pods, edges = places + links.reshape(self.k, h**2), links.reshape(self.k * h, h)
        return [
            Cut("pod", ranks // h**2, pods, pods + places),
            Cut("edge", ranks // h, edges, edges + 3 * places),
            Cut("rank", ranks, ranks[:, None], self.num_ranks + ranks[:, None]),
        ]
