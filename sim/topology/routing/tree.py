"""Ranks on the leaves of a tree of switches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sim.topology.routing.protocol import Cut, Ranks, Wiring, rank_names
from sim.topology.routing.switch_tree import SwitchTree


@dataclass(frozen=True)
class TreeRouting:
    """A message crosses its rank's link to the leaf, those of the tree, and the link down to its destination.

    So it crosses two links under one leaf, four inside a pod, six between pods.  Rank r is on port r of
    *tree*, which says which of its equal paths a message takes.

    Links, with R ranks: up of rank r is ``r``, down is ``R + r``; those of the tree follow.
    """

    num_ranks: int
    tree: SwitchTree

    def walk(self, source: Ranks, destination: Ranks) -> Iterator[Ranks]:
        """Yield the links up, as far as the two have no switch in common, and down again."""
        yield source
        yield from self.tree.walk(2 * self.num_ranks, source, destination, source, destination)
        yield self.num_ranks + destination

    def link_name(self, link: int) -> str:
        """Return for example ``rank 3 up`` or ``leaf 0 to spine 1``."""
        if link < 2 * self.num_ranks:
            return f"rank {link % self.num_ranks} {'down' if link >= self.num_ranks else 'up'}"
        return self.tree.link_name(link - 2 * self.num_ranks)

    def wiring(self) -> Wiring:
        """Return the ranks, then the switches from the leaves up."""
        ranks = np.arange(self.num_ranks)
        own_leaf = self.num_ranks + ranks // self.tree.ports_per_leaf
        names, tail, head = self.tree.wiring(self.num_ranks)
        return Wiring(
            (*rank_names(self.num_ranks), *names),
            np.concatenate([ranks, own_leaf, tail]),
            np.concatenate([own_leaf, ranks, head]),
        )

    def cuts(self) -> list[Cut]:
        """Return the cuts around each pod, if there are several, each leaf and each rank."""
        ranks = np.arange(self.num_ranks)
        return [
            *self.tree.cuts(2 * self.num_ranks, ranks // self.tree.ports_per_leaf, self.tree.levels[0]),
            Cut("rank", ranks, ranks[:, None], self.num_ranks + ranks[:, None]),
        ]
