"""Packing of trees: which trees carry how much, so that the fullest link is as empty as can be.

A linear program over all trees, of which only those that pay are made: it says what time on each link is
worth, the cheapest tree at these prices (`collectives.synthesis.arborescence`) either lowers the load of the
fullest link and joins, or proves how low it can be at most:

    minimise t,  where  Σ trees over link l: weight / bandwidth(l) ≤ t  and  Σ weights of a root = its share

At any prices with Σ = 1 the cheapest trees cost no more than the least t (weak duality), so every turn also
gives a bound.  Then, for as long, the load of all other links is brought down: ranks that need not wait for
links that are full by chance keep in step with those that are full by necessity.

Edges of trees are routes between ranks as the network has them, so the bound holds for every
program of trees on this network; a cut (`collectives.synthesis.cut`) bounds programs of all kinds.

Source: column generation after Gilmore and Gomory, Operations Research 9(6), 1961; that packings of trees
attain the bound of cuts is Edmonds, "Edge-disjoint branchings", 1973.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from collectives.synthesis.demand import Demand, Tree
from collectives.synthesis.routes import Float64Array

GAP = 1e-3
"""How near to the bound is near enough."""

_DEPTH = 2e-3
"""What a level of a tree may cost, of the time of the fullest link: deep trees take long to fill."""

_SHALLOW_FROM = 5
"""So many times that, from which on a packing of shallower trees is made too."""
_NEARLY_FULL = (0.6, 0.8, 0.95)
"""Parts of the time of the fullest link, above each of which the load of another counts once more."""
_PER_LOAD = 0.02
"""What it counts below."""
_TURNS_TO_SPARE = 20
"""Turns in which trees are sought that spare nearly full links."""

_IN_VAIN = 40
"""Turns after which a bound that does not rise is taken for as high as it gets."""


@dataclass
class Packing:
    """Trees and what they carry.

    Attributes:
        trees: those of the first root of each orbit.
        weights: the part of the buffer that each carries.
        seconds_per_byte: for which the fullest link is in use.
        bound: below which that cannot be, by prices of links.
        prices: of each orbit of links, their sum 1; those that prove the bound, where it was not known.
        loads: of each tree on each orbit of links, in seconds for each byte.
    """

    trees: list[Tree]
    weights: Float64Array
    seconds_per_byte: float
    bound: float
    prices: Float64Array
    loads: Float64Array


def pack(demand: Demand, *, enough: float = 0.0) -> Packing:
    """Return the best packing that is found; *enough* is a bound that is known, in seconds for each byte."""
    return packings(demand, enough=enough)[0]


def packings(demand: Demand, *, enough: float = 0.0, level: float = 0.0) -> list[Packing]:
    """Return the packing that loads the fullest link least, and one for which a level costs *level*.

    Args:
        demand: what is to be packed.
        enough: a bound that is known already, in seconds for each byte.
        level: what a level of the trees costs, in seconds for each byte; the second packing is left out
            where that is little.
    """
    pool = _Pool(demand)
    num_orbits = len(demand.symmetry.orbit_sizes)
    per_link, orbit = demand.link_seconds(), demand.symmetry.orbit_of_link[:-1]
    crossed = np.zeros(num_orbits)
    crossed[orbit[np.unique(demand.routes.links[demand.routes.links < len(orbit)])]] = 1
    centre = crossed / crossed.sum()
    bound, kept_prices = enough, centre
    for tree in (*demand.simplest(), *demand.cheapest(centre[orbit] * per_link)[0]):
        pool.add(tree)

    mix, since = 0.5, 0
    while True:
        load, weights, prices = pool.solve(bound)
        if load <= bound * (1 + GAP) or since > _IN_VAIN:
            break
        asked = mix * kept_prices + (1 - mix) * prices
        found, cost = demand.cheapest(asked[orbit] * per_link)
        value = demand.share * cost
        since += 1
        if value > bound * (1 + 1e-5):
            bound, kept_prices, since = value, asked, 0
        new = [pool.add(tree) for tree in found]
        if not any(new):
            if mix == 0:
                break
            mix = 0.0
        else:
            mix = 0.5
    for _ in range(_TURNS_TO_SPARE):
        weights, prices = pool.spare(load)
        found, _ = demand.cheapest(prices[orbit] * per_link)
        new = [pool.add(tree) for tree in found]
        if not any(new):
            break
    weights, _ = pool.spare(load)
    found_weights = [weights]
    if level > _SHALLOW_FROM * _DEPTH * load:
        found_weights.append(pool.solve(load, level / load)[1])
    return [pool.packing(weights, bound, kept_prices) for weights in found_weights]


class _Pool:
    """The trees so far, and the linear program over them."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.trees: list[Tree] = []
        self.loads: list[Float64Array] = []
        self._heights: list[int] = []
        self._known: set[tuple[object, ...]] = set()
        self._number_of: dict[Hashable, int] = {}
        self._groups: list[int] = []

    def add(self, tree: Tree) -> bool:
        """Take *tree* in; return whether it is new."""
        if tree.key() in self._known:
            return False
        self._known.add(tree.key())
        self.trees.append(tree)
        self.loads.append(self.demand.loads(tree))
        self._heights.append(tree.height)
        group = self.demand.group_of(tree)
        self._groups.append(self._number_of.setdefault(group, len(self._number_of)))
        return True

    def packing(self, weights: Float64Array, bound: float, prices: Float64Array) -> Packing:
        """Return the trees that *weights* use."""
        used = [number for number, weight in enumerate(weights) if weight > 1e-9 * self.demand.share]
        return Packing(
            [self.trees[number] for number in used],
            weights[used],
            float((np.array(self.loads).T @ weights).max()),
            bound,
            prices,
            np.array([self.loads[number] for number in used]),
        )

    def solve(self, bound: float, level: float = _DEPTH) -> tuple[float, Float64Array, Float64Array]:
        """Return the load of the fullest link, the weight of each tree, and the prices of orbits of links."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_array

        demand = self.demand
        loads = np.array(self.loads).T
        scale = max(bound, float(loads.max()) * demand.share / len(loads))
        places = (self._groups, range(len(self.trees)))
        num_groups = demand.num_groups
        equal = csr_array((np.ones(len(self.trees)), places), shape=(num_groups, len(self.trees) + 1))
        # Weights are taken in shares, times in the scale: numbers near 1.
        upper = np.hstack([loads * (demand.share / scale), -np.ones((len(loads), 1))])
        depth_cost = level * np.array(self._heights) / num_groups
        solved = linprog(
            np.append(depth_cost, 1.0),
            A_ub=upper,
            b_ub=np.zeros(len(upper)),
            A_eq=equal,
            b_eq=np.ones(num_groups),
            method="highs",
        )
        prices = np.maximum(-solved.ineqlin.marginals, 0.0)
        total = prices.sum()
        prices = prices / total if total else np.full(len(upper), 1 / len(upper))
        weights = solved.x[:-1] * demand.share
        return float((loads @ weights).max()), weights, prices

    def spare(self, most: float) -> tuple[Float64Array, Float64Array]:
        """Return weights that spare nearly full links, none of which carries more than *most*, and prices."""
        from scipy.optimize import linprog
        from scipy.sparse import block_array, csr_array, eye_array, vstack

        demand, num_trees = self.demand, len(self.trees)
        loads = csr_array(np.array(self.loads).T * (demand.share / most))
        num_links = loads.shape[0]
        num_excesses = num_links * len(_NEARLY_FULL)
        limited = block_array([[loads, csr_array((num_links, num_excesses))]])
        excess = block_array([[vstack([loads] * len(_NEARLY_FULL)), -eye_array(num_excesses)]])
        places = (self._groups, range(num_trees))
        equal = csr_array((np.ones(num_trees), places), shape=(demand.num_groups, num_trees + num_excesses))
        depth_cost = _DEPTH * np.array(self._heights) / demand.num_groups
        solved = linprog(
            np.append(depth_cost + _PER_LOAD * loads.sum(axis=0), np.ones(num_excesses)),
            A_ub=vstack([limited, excess]),
            b_ub=np.append(np.full(num_links, 1 + 1e-6), np.repeat(_NEARLY_FULL, num_links)),
            A_eq=equal,
            b_eq=np.ones(demand.num_groups),
            method="highs",
        )
        prices = np.maximum(-solved.ineqlin.marginals, 0.0).reshape(-1, num_links).sum(axis=0)
        return solved.x[:num_trees] * demand.share, prices + _PER_LOAD
