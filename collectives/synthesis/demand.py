"""Demands: what trees, or paths, a collective asks of a network, and which of them are cheapest."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from collectives.synthesis.arborescence import cheapest_tree, depths, shallower
from collectives.synthesis.routes import Float64Array, Routes
from collectives.synthesis.symmetry import Symmetry
from sim.units import Int64Array

Kind: TypeAlias = Literal["spreading", "reducing", "exchanging"]


@dataclass(frozen=True, eq=False)
class Tree:
    """Where the chunks of a root go.

    Attributes:
        root: a rank.
        spreads: the parent of each rank in the tree on which they go out; None: they do not.
        collects: the same of the tree on which contributions come in first.
        destination: of a path, which is a tree of few ranks: where it ends; None: all ranks are in the tree.
    """

    root: int
    spreads: Int64Array | None = None
    collects: Int64Array | None = None
    destination: int | None = None

    def edges(self) -> tuple[Int64Array, Int64Array]:
        """Return the ranks that send and those that receive."""
        sources, destinations = [], []
        if self.collects is not None:
            below = np.flatnonzero(self.collects >= 0)
            sources.append(below)
            destinations.append(self.collects[below])
        if self.spreads is not None:
            below = np.flatnonzero(self.spreads >= 0)
            sources.append(self.spreads[below])
            destinations.append(below)
        return np.concatenate(sources), np.concatenate(destinations)

    @cached_property
    def height(self) -> int:
        """Messages one after another."""
        return sum(int(depths(tree).max()) for tree in (self.spreads, self.collects) if tree is not None)

    def key(self) -> tuple[object, ...]:
        """Return what equal trees have in common."""
        return (
            self.root,
            *(None if tree is None else tree.tobytes() for tree in (self.spreads, self.collects)),
        )


@dataclass(frozen=True, eq=False)
class Demand:
    """What is to be packed.

    Attributes:
        routes: of messages on trees that go out.
        symmetry: of the network, and of the demand.
        roots: the first rank of each orbit that has a share.
        share: of the buffer, that each group of trees carries together.
        kind: ``spreading``: the trees of each root are a group; ``reducing``: every chunk comes in on one
            tree and goes out on another, of any root, and all are one group; ``exchanging``: the paths
            from a root to another rank are a group.
    """

    routes: Routes
    symmetry: Symmetry
    roots: Sequence[int]
    share: float
    kind: Kind = "spreading"

    @property
    def num_groups(self) -> int:
        """Number of groups of trees."""
        of_root = {"spreading": 1, "reducing": 0, "exchanging": self.routes.num_ranks - 1}
        return max(1, len(self.roots) * of_root[self.kind])

    def group_of(self, tree: Tree) -> Hashable:
        """Return the group that *tree* is of."""
        return None if self.kind == "reducing" else (tree.root, tree.destination)

    def link_seconds(self) -> Float64Array:
        """Return for how long an edge that crosses it, and those alike, use each link for a byte."""
        orbit = self.symmetry.orbit_of_link[:-1]
        per_link: Float64Array = self.symmetry.order / self.symmetry.orbit_sizes[orbit] / self.routes.capacity
        return per_link

    def loads(self, tree: Tree) -> Float64Array:
        """Return the seconds for each byte that *tree*, and those alike, put on the links of each orbit."""
        crossed = self.routes.links[tree.edges()].ravel()
        crossed = crossed[crossed < len(self.routes.capacity)]
        loads = np.zeros(len(self.symmetry.orbit_sizes))
        np.add.at(loads, self.symmetry.orbit_of_link[crossed], self.link_seconds()[crossed])
        return loads

    def simplest(self) -> Iterator[Tree]:
        """Yield the trees without any rank between."""
        for root in self.roots:
            parent = np.full(self.routes.num_ranks, root, dtype=np.int64)
            parent[root] = -1
            if self.kind == "exchanging":
                before = [root] * self.routes.num_ranks
                for destination in np.flatnonzero(parent >= 0).tolist():
                    yield _path(root, destination, before)
            else:
                yield Tree(root, parent, parent if self.kind == "reducing" else None)

    def cheapest(self, prices: Float64Array) -> tuple[list[Tree], float]:
        """Return the cheapest tree of each group where links cost *prices* for each byte, and what all cost.

        Of trees that reduce the cheapest of each root is returned, and what the cheapest of all costs.
        """
        weights = self.routes.weights(prices)
        # Among equally cheap trees those of short routes.
        scale = float(weights[np.isfinite(weights)].max()) or 1.0
        delay = self.routes.latency / max(int(self.routes.latency.max()), 1)
        nudged = weights + 1e-7 * scale * (1 + delay)
        if self.kind == "exchanging":
            trees = list(self._cheapest_paths(nudged))
            return trees, sum(_cost(weights, tree.spreads) for tree in trees)
        trees, costs = [], []
        for root in self.roots:
            spreads = _tree(nudged, root)
            collects = _tree(nudged.T, root) if self.kind == "reducing" else None
            trees.append(Tree(root, spreads, collects))
            costs.append(_cost(weights, spreads) + _cost(weights.T, collects))
        return trees, min(costs) if self.kind == "reducing" else sum(costs)

    def _cheapest_paths(self, weights: Float64Array) -> Iterator[Tree]:
        from scipy.sparse.csgraph import shortest_path

        scaled = weights * (1e6 / weights.min())  # what is nearly 0 is taken for no edge
        _, before = shortest_path(scaled, indices=list(self.roots), return_predecessors=True)
        for root, row in zip(self.roots, before.tolist(), strict=True):
            for destination in range(self.routes.num_ranks):
                if destination != root:
                    yield _path(root, destination, row)


def _path(root: int, destination: int, before: Sequence[int]) -> Tree:
    """Return the path from *root* that enters each rank from the one in *before*."""
    parent = np.full(len(before), -1, dtype=np.int64)
    rank = destination
    while rank != root:
        parent[rank] = before[rank]
        rank = before[rank]
    return Tree(root, parent, destination=destination)


def _tree(weights: Float64Array, root: int) -> Int64Array:
    return shallower(cheapest_tree(weights, root), weights)


def _cost(weights: Float64Array, parent: Int64Array | None) -> float:
    if parent is None:
        return 0.0
    below = np.flatnonzero(parent >= 0)
    return float(weights[parent[below], below].sum())
