"""Packing of trees: which trees carry how much, so that the fullest link is as empty as can be.

A linear program over all trees, of which only those that pay are made: it says what time on each link is
worth, the cheapest tree at these prices (`collectives.synthesis.arborescence`) either lowers the load of the
fullest link and joins, or proves how low it can be at most:

    minimise t,  where  Σ trees over link l: weight / bandwidth(l) ≤ t  and  Σ weights of a root = its share

At any prices with Σ = 1 the cheapest trees cost no more than the least t (weak duality), so every turn also
gives a bound.  Edges of trees are routes between ranks as the network has them, so the bound holds for every
program of trees on this network; a cut (`collectives.synthesis.cut`) bounds programs of all kinds.

Source: column generation after Gilmore and Gomory, Operations Research 9(6), 1961; that packings of trees
attain the bound of cuts is Edmonds, "Edge-disjoint branchings", 1973.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from collectives.synthesis.arborescence import cheapest_tree, depths, shallower
from collectives.synthesis.routes import Float64Array, Routes
from collectives.synthesis.symmetry import Symmetry
from sim.units import Int64Array

GAP = 1e-3
"""How near to the bound is near enough."""

_DEPTH = 2e-3
"""What a level of a tree may cost, of the time of the fullest link: deep trees take long to fill."""


_IN_VAIN = 40
"""Turns after which a bound that does not rise is taken for as high as it gets."""


@dataclass(frozen=True, eq=False)
class Tree:
    """Where the chunks of a root go.

    Attributes:
        root: a rank.
        spreads: the parent of each rank in the tree on which they go out; None: they do not.
        collects: the same of the tree on which contributions come in first.
    """

    root: int
    spreads: Int64Array | None = None
    collects: Int64Array | None = None

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

    @property
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
        share: of the buffer, that each root has; of an all-reduce, all of it over the order of the symmetry.
        is_reduction: all-reduce: every chunk comes in on one tree and goes out on another, of any root.
    """

    routes: Routes
    symmetry: Symmetry
    roots: Sequence[int]
    share: float
    is_reduction: bool = False

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

    def cheapest(self, prices: Float64Array) -> Iterator[tuple[Tree, float]]:
        """Yield the cheapest tree of each root where links cost *prices* for each byte, and its cost."""
        weights = self.routes.weights(prices)
        # Among equally cheap trees those of short routes.
        scale = float(weights[np.isfinite(weights)].max()) or 1.0
        delay = self.routes.latency / max(int(self.routes.latency.max()), 1)
        nudged = weights + 1e-7 * scale * (1 + delay)
        for root in self.roots:
            spreads = _tree(nudged, root)
            cost = _cost(weights, spreads)
            collects = None
            if self.is_reduction:
                collects = _tree(nudged.T, root)
                cost += _cost(weights.T, collects)
            yield Tree(root, spreads, collects), cost


@dataclass
class Packing:
    """Trees and what they carry.

    Attributes:
        trees: those of the first root of each orbit.
        weights: the part of the buffer that each carries.
        seconds_per_byte: for which the fullest link is in use.
        bound: below which that cannot be, by prices of links.
        loads: of each tree on each orbit of links, in seconds for each byte.
    """

    trees: list[Tree]
    weights: Float64Array
    seconds_per_byte: float
    bound: float
    loads: Float64Array


def pack(demand: Demand, *, enough: float = 0.0) -> Packing:
    """Return the best packing that is found.

    Args:
        demand: what is to be packed.
        enough: a bound that is known already, in seconds for each byte.
    """
    pool = _Pool(demand)
    num_orbits = len(demand.symmetry.orbit_sizes)
    per_link, orbit = demand.link_seconds(), demand.symmetry.orbit_of_link[:-1]
    crossed = np.zeros(num_orbits)
    crossed[orbit[np.unique(demand.routes.links[demand.routes.links < len(orbit)])]] = 1
    centre = crossed / crossed.sum()
    bound, kept_prices = enough, centre
    for tree, _ in demand.cheapest(centre[orbit] * per_link):
        pool.add(tree)
    for root in demand.roots:
        pool.add(_star(demand, root))

    mix, since = 0.5, 0
    while True:
        load, weights, prices = pool.solve(bound)
        if load <= bound * (1 + GAP) or since > _IN_VAIN:
            break
        asked = mix * kept_prices + (1 - mix) * prices
        found = list(demand.cheapest(asked[orbit] * per_link))
        costs = [cost for _, cost in found]
        value = demand.share * (min(costs) if demand.is_reduction else sum(costs))
        since += 1
        if value > bound * (1 + 1e-5):
            bound, kept_prices, since = value, asked, 0
        new = [pool.add(tree) for tree, _ in found]
        if not any(new):
            if mix == 0:
                break
            mix = 0.0
        else:
            mix = 0.5
    used = [number for number, weight in enumerate(weights) if weight > 1e-9 * demand.share]
    return Packing(
        [pool.trees[number] for number in used],
        weights[used],
        load,
        bound,
        np.array([pool.loads[number] for number in used]),
    )


def _star(demand: Demand, root: int) -> Tree:
    parent = np.full(demand.routes.num_ranks, root, dtype=np.int64)
    parent[root] = -1
    return Tree(root, parent, parent if demand.is_reduction else None)


def _tree(weights: Float64Array, root: int) -> Int64Array:
    return shallower(cheapest_tree(weights, root), weights)


def _cost(weights: Float64Array, parent: Int64Array) -> float:
    below = np.flatnonzero(parent >= 0)
    return float(weights[parent[below], below].sum())


class _Pool:
    """The trees so far, and the linear program over them."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.trees: list[Tree] = []
        self.loads: list[Float64Array] = []
        self._heights: list[int] = []
        self._known: set[tuple[object, ...]] = set()

    def add(self, tree: Tree) -> bool:
        """Take *tree* in; return whether it is new."""
        if tree.key() in self._known:
            return False
        self._known.add(tree.key())
        self.trees.append(tree)
        self.loads.append(self.demand.loads(tree))
        self._heights.append(tree.height)
        return True

    def solve(self, bound: float) -> tuple[float, Float64Array, Float64Array]:
        """Return the load of the fullest link, the weight of each tree, and the prices of orbits of links."""
        from scipy.optimize import linprog

        demand = self.demand
        loads = np.array(self.loads).T
        scale = max(bound, float(loads.max()) * demand.share / len(loads))
        roots = [0] if demand.is_reduction else list(demand.roots)
        which = np.array([0 if demand.is_reduction else roots.index(tree.root) for tree in self.trees])
        equal = np.zeros((len(roots), len(self.trees) + 1))
        equal[which, np.arange(len(self.trees))] = 1
        # Weights are taken in shares, times in the scale: numbers near 1.
        upper = np.hstack([loads * (demand.share / scale), -np.ones((len(loads), 1))])
        depth_cost = _DEPTH * np.array(self._heights) / len(roots)
        solved = linprog(
            np.append(depth_cost, 1.0),
            A_ub=upper,
            b_ub=np.zeros(len(upper)),
            A_eq=equal,
            b_eq=np.ones(len(roots)),
            method="highs",
        )
        prices = np.maximum(-solved.ineqlin.marginals, 0.0)
        total = prices.sum()
        prices = prices / total if total else np.full(len(upper), 1 / len(upper))
        weights = solved.x[:-1] * demand.share
        return float((loads @ weights).max()), weights, prices
