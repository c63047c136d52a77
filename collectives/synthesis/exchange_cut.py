"""The cut of a network that bounds an all-to-all: of sets of ranks that are likely, the worst.

What the ranks of a set S have for the others, and the others for them, must cross any boundary between both.
For given ranks the least boundary is a minimum cut; which ranks make the worst is hard to say (it is the
sparsest cut), so sets are tried: each rank, each node, and whoever is near a rank at given prices of links.
What the prices say themselves bounds as well (`collectives.synthesis.packing`).

Source: Leighton and Rao, "Multicommodity max-flow min-cut theorems and their use in designing approximation
algorithms", J. ACM 46(6), 1999, for prices as distances.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from collectives.synthesis.cut import Bound, minimum_cut
from collectives.synthesis.demand import Demand
from collectives.synthesis.routes import Float64Array, working_bandwidth
from sim.topology import Topology
from sim.units import Int64Array

_MOST_SETS = 200


def likely_sets(topology: Topology) -> list[frozenset[int]]:
    """Return each rank, each node, and the first so many nodes."""
    num_ranks, per_node = topology.num_ranks, topology.ranks_per_node
    sets = [frozenset((rank,)) for rank in range(num_ranks)]
    for start in range(0, num_ranks, per_node):
        sets.append(frozenset(range(start, min(start + per_node, num_ranks))))
        sets.append(frozenset(range(start)))
    return sets


def sets_by_distance(demand: Demand, prices: Float64Array) -> list[frozenset[int]]:
    """Return for each rank those within each distance, where the time on orbits of links has *prices*."""
    of_links = prices[demand.symmetry.orbit_of_link[:-1]] * demand.link_seconds()
    distances = demand.routes.weights(of_links / of_links.max())
    np.fill_diagonal(distances, 0.0)
    return [
        frozenset(np.flatnonzero(row <= radius + 1e-12).tolist())
        for row in distances
        for radius in np.unique(row.round(12)).tolist()
    ]


def exchange_cut(topology: Topology, sets: Iterable[frozenset[int]]) -> Bound:
    """Return the cut that takes longest, of those that part one of *sets* from the other ranks."""
    wiring, num_ranks = topology.routing.wiring(), topology.num_ranks
    size = len(wiring.names) + 2
    bandwidth = working_bandwidth(topology)
    largest = int(bandwidth.max())
    rates = np.ceil(bandwidth / largest * 2**20).astype(np.int64)
    tail = np.concatenate([wiring.tail, wiring.joins[:, 0]])
    head = np.concatenate([wiring.head, wiring.joins[:, 1]])
    total = int(rates.sum()) + 1
    if total >= 2**31:
        rates = -(-rates * 2**30 // total)
        total = int(rates.sum()) + 1
    amount = np.concatenate([rates, np.full(len(wiring.joins), total)])

    def cut_around(inside: Int64Array) -> Bound:
        outside = np.setdiff1d(np.arange(num_ranks), inside)
        ends_tail = np.concatenate([np.full(len(inside), size - 2), outside])
        ends_head = np.concatenate([inside, np.full(len(outside), size - 1)])
        amounts = np.concatenate([amount, np.full(num_ranks, total)])
        tails, heads = np.concatenate([tail, ends_tail]), np.concatenate([head, ends_head])
        _, found = minimum_cut(tails, heads, amounts, size, size - 2, size - 1)
        reached = np.isin(np.arange(size), found)
        crossing = np.flatnonzero(reached[wiring.tail] & ~reached[wiring.head] & (bandwidth > 0))
        pairs = Fraction(len(inside) * len(outside), num_ranks)
        rate = sum(int(bandwidth[link]) for link in crossing)
        return Bound(
            pairs / rate if rate else Fraction(0), tuple(inside.tolist()), tuple(crossing.tolist()), True
        )

    tried: dict[frozenset[int], None] = {}
    for inside in sets:
        if 0 < len(inside) < num_ranks:
            tried[inside] = None
            tried[frozenset(range(num_ranks)) - inside] = None
    bounds = [cut_around(np.array(sorted(inside))) for inside in list(tried)[:_MOST_SETS]]
    return max(bounds, key=lambda bound: bound.seconds_per_byte)
