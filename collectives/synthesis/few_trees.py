"""Few trees: as many for each root as are asked for, each with an equal part, that spare the fullest link.

A program of few trees is regular: ranks keep in step, which a packing of many trees that fill every link may
not.  The best are hard to find; here ranks change their parents one by one for as long as the fullest links
get emptier, by a norm that also counts those nearly as full.
"""

from __future__ import annotations

import numpy as np

from collectives.synthesis.arborescence import depths
from collectives.synthesis.demand import Demand, Tree
from collectives.synthesis.packing import Packing
from sim.units import Int64Array

_SWEEPS = 30
_NORM = 12
_PER_LEVEL = 1e-3
"""What a level of a tree counts, of the norm."""


def few_trees(demand: Demand, trees: int, best: Packing) -> Packing:
    """Return *trees* trees for each root of *demand*, which spreads, beside the bound of *best*."""
    searches = [
        _Search(
            demand,
            [[start(demand, root, number, best) for number in range(trees)] for root in demand.roots],
            best,
        )
        for start in (_chain, _heaviest)
    ]
    for search in searches:
        for _ in range(_SWEEPS):
            if not search.sweep():
                break
    search = min(searches, key=lambda own: float(own.load.max()))
    made = [
        Tree(root, parent)
        for root, of_root in zip(demand.roots, search.parents, strict=True)
        for parent in of_root
    ]
    weights = np.full(len(made), demand.share / trees)
    loads = np.array([demand.loads(tree) for tree in made])
    return Packing(made, weights, float((weights @ loads).max()), best.bound, best.prices, loads)


def _chain(demand: Demand, root: int, number: int, _: Packing) -> Int64Array:
    """Return the parents on a chain from *root* through all ranks, upwards or downwards."""
    num_ranks = demand.routes.num_ranks
    others = (root + np.arange(num_ranks) * (-1) ** number) % num_ranks
    parent = np.full(num_ranks, -1, dtype=np.int64)
    parent[others[1:]] = others[:-1]
    return parent


def _heaviest(_: Demand, root: int, number: int, best: Packing) -> Int64Array:
    """Return the parents on one of the trees of *root* that carry most in *best*."""
    own = [
        (weight, tree.spreads)
        for weight, tree in zip(best.weights.tolist(), best.trees, strict=True)
        if tree.root == root and tree.spreads is not None
    ]
    own.sort(key=lambda entry: -entry[0])
    return own[number % len(own)][1].copy()


class _Search:
    """Trees, and what they put on the orbits of links, as a part of what the fullest must carry at least."""

    def __init__(self, demand: Demand, parents: list[list[Int64Array]], best: Packing) -> None:
        links = demand.routes.links
        seconds = np.append(demand.link_seconds(), 0.0) * demand.share / len(parents[0])
        self.crossed = demand.symmetry.orbit_of_link[links]
        self.use = seconds[links] / best.seconds_per_byte
        self.load = np.zeros(len(demand.symmetry.orbit_sizes))
        self.parents = parents
        for of_root in parents:
            for parent in of_root:
                for rank in np.flatnonzero(parent >= 0).tolist():
                    self._put(int(parent[rank]), rank, 1.0)

    def _put(self, source: int, destination: int, times: float) -> None:
        np.add.at(self.load, self.crossed[source, destination], times * self.use[source, destination])

    def sweep(self) -> bool:
        """Give every rank in every tree the best parent; return whether any changed."""
        changed = False
        for of_root in self.parents:
            for parent in of_root:
                for rank in np.flatnonzero(parent >= 0).tolist():
                    changed |= self._improve(parent, rank)
        return changed

    def _improve(self, parent: Int64Array, rank: int) -> bool:
        old = int(parent[rank])
        self._put(old, rank, -1.0)
        crossed, use = self.crossed[:, rank], self.use[:, rank]  # of the routes from all ranks
        before = self.load[crossed]
        cost = ((before + use) ** _NORM - before**_NORM).sum(axis=1)
        depth = depths(parent)
        cost = cost + _PER_LEVEL * (depth + 1 - depth[rank])
        cost[_below(parent, rank)] = np.inf
        new = int(cost.argmin())
        if cost[new] > cost[old] - 1e-9:
            new = old
        parent[rank] = new
        self._put(new, rank, 1.0)
        return new != old


def _below(parent: Int64Array, rank: int) -> Int64Array:
    """Return *rank* and the ranks below it."""
    inside = np.arange(len(parent)) == rank
    while True:
        more = inside | (inside[parent] & (parent >= 0))
        if np.array_equal(more, inside):
            found: Int64Array = np.flatnonzero(inside)
            return found
        inside = more
