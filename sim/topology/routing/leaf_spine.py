"""A tree of two levels: hosts on leaf switches, every leaf linked to every spine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sim.topology.routing.hashing import spread
from sim.topology.routing.protocol import Cut, Ranks, Wiring, choose, rank_names


@dataclass(frozen=True)
class LeafSpineRouting:
    """A message crosses two links inside a leaf, and four to another leaf, by way of one spine.

    The spine is that of the destination, ``destination % num_spines`` (d-mod-k, as InfiniBand fat
    trees: Zahavi, "Fat-tree routing and node ordering providing contention free traffic for MPI
    global collectives", JPDC 72(11), 2012), or, with a seed, by hash of source and destination (ECMP).

    Links, with R ranks on L leaves and S spines: up of rank r is ``r``, down is ``R + r``; from leaf l
    to spine s is ``2R + l·S + s``, from spine s to leaf l that plus ``L·S``.

    Attributes:
        num_ranks: number of ranks.
        hosts_per_leaf: consecutive ranks that share a leaf.
        num_spines: number of spines.
        ecmp_seed: of the hash; None: by destination.
    """

    num_ranks: int
    hosts_per_leaf: int
    num_spines: int
    ecmp_seed: int | None = None

    @property
    def num_leaves(self) -> int:
        """Number of leaves that have a rank."""
        return -(-self.num_ranks // self.hosts_per_leaf)

    @property
    def num_uplinks(self) -> int:
        """Number of links from leaves to spines."""
        return self.num_leaves * self.num_spines

    def walk(self, source: Ranks, destination: Ranks) -> Iterator[Ranks]:
        """Yield the links to the leaf, the spine, the other leaf, the destination."""
        here, there = source // self.hosts_per_leaf, destination // self.hosts_per_leaf
        spine = (
            destination % self.num_spines
            if self.ecmp_seed is None
            else spread(self.ecmp_seed, self.num_spines, source, destination)
        )
        up = 2 * self.num_ranks + spine
        yield source
        yield choose(here == there, -1, up + here * self.num_spines)
        yield choose(here == there, -1, up + self.num_uplinks + there * self.num_spines)
        yield self.num_ranks + destination

    def link_name(self, link: int) -> str:
        """Return for example ``rank 3 up``, ``leaf 0 to spine 1`` or ``spine 1 to leaf 0``."""
        if link < 2 * self.num_ranks:
            return f"rank {link % self.num_ranks} {'down' if link >= self.num_ranks else 'up'}"
        down, uplink = divmod(link - 2 * self.num_ranks, self.num_uplinks)
        leaf, spine = divmod(uplink, self.num_spines)
        return f"spine {spine} to leaf {leaf}" if down else f"leaf {leaf} to spine {spine}"

    def wiring(self) -> Wiring:
        """Return ranks, ``leaf 0`` and so on, ``spine 0`` and so on."""
        ranks, uplinks = np.arange(self.num_ranks), np.arange(self.num_uplinks)
        own_leaf = self.num_ranks + ranks // self.hosts_per_leaf
        leaf = self.num_ranks + uplinks // self.num_spines
        spine = self.num_ranks + self.num_leaves + uplinks % self.num_spines
        names = (
            *rank_names(self.num_ranks),
            *(f"leaf {leaf}" for leaf in range(self.num_leaves)),
            *(f"spine {spine}" for spine in range(self.num_spines)),
        )
        return Wiring(
            names,
            np.concatenate([ranks, own_leaf, leaf, spine]),
            np.concatenate([own_leaf, ranks, spine, leaf]),
        )

    def cuts(self) -> list[Cut]:
        """Return the cuts around each leaf and around each rank."""
        ranks = np.arange(self.num_ranks)
        up = 2 * self.num_ranks + np.arange(self.num_uplinks).reshape(self.num_leaves, self.num_spines)
        return [
            Cut("leaf", ranks // self.hosts_per_leaf, up, up + self.num_uplinks),
            Cut("rank", ranks, ranks[:, None], self.num_ranks + ranks[:, None]),
        ]
