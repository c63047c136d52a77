from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from collectives.synthesis.arborescence import cheapest_tree, depths, shallower
from collectives.synthesis.demand import Demand
from collectives.synthesis.packing import pack
from collectives.synthesis.routes import Routes
from collectives.synthesis.symmetry import no_symmetry, symmetry_of
from sim import load_network


@pytest.mark.parametrize("seed", range(12))
def test_the_cheapest_tree_costs_what_networkx_finds(seed: int) -> None:
    random = np.random.default_rng(seed)
    size = int(random.integers(2, 9))
    weights = random.integers(0, 6, (size, size)).astype(float)
    np.fill_diagonal(weights, np.inf)
    graph = nx.DiGraph()
    for tail, head in zip(*np.nonzero(np.isfinite(weights)), strict=True):
        if head != 0:
            graph.add_edge(int(tail), int(head), weight=weights[tail, head] + 1)

    tree = cheapest_tree(weights, 0)
    raised = shallower(tree, weights)

    expected = nx.minimum_spanning_arborescence(graph).size("weight") - (size - 1)
    for own in (tree, raised):
        assert weights[own[1:], np.arange(1, size)].sum() == expected
    assert depths(raised).max() <= depths(tree).max() < size


@pytest.mark.parametrize(("name", "order"), [("aws-p4d", 16), ("switch-100g", 16)])
def test_ranks_that_are_alike_are_packed_as_one(name: str, order: int) -> None:
    pytest.importorskip("scipy")
    routes = Routes.of(load_network(name).topology(16))
    symmetry = symmetry_of(routes)

    folded = pack(Demand(routes, symmetry, symmetry.representatives, 1 / 16))
    plain = pack(Demand(routes, no_symmetry(routes), range(16), 1 / 16))

    assert (symmetry.order, symmetry.representatives) == (order, [0])
    assert folded.bound <= folded.seconds_per_byte
    assert folded.seconds_per_byte == pytest.approx(plain.seconds_per_byte, rel=3e-3)
