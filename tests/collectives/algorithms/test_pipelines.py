"""Chains, direct exchanges and trees in segments."""

import numpy as np
import pytest

from collectives import resolve_algorithm, simulate
from collectives.algorithms.double_binary_tree import two_trees
from sim import Topology


def test_both_directions_of_a_ring_of_links_are_busy_at_once():
    chain = resolve_algorithm("chain").with_parameters(segments=100)
    topology = Topology.ring(num_ranks=4, bandwidth=10**9, latency="0s")

    run = simulate(chain, nbytes=100 * 1000, topology=topology)

    assert (run.engine, run.time_ps) == ("makespan", (2 * 3 + 99) * 1000 * 1000)


@pytest.mark.parametrize("world_size", [*range(1, 70), 1000, 1023, 1024, 1025])
@pytest.mark.parametrize("rooted", [False, True])
def test_no_rank_but_the_root_is_an_inner_node_of_both_trees(world_size, rooted):
    root = world_size // 2 if rooted else None

    first, second = two_trees(world_size, root)

    inner = [set(np.flatnonzero((tree.left >= 0) | (tree.right >= 0))) for tree in (first, second)]
    assert inner[0] & inner[1] <= {root}
    num_below = world_size - rooted
    for tree in (first, second):
        assert np.count_nonzero(tree.parent < 0) == 1
        assert tree.depth.max() == (num_below.bit_length() - 1 + rooted if num_below else 0)


def test_many_segments_bring_the_full_bandwidth_and_few_a_latency_far_below_a_rings():
    topology = Topology.switch(num_ranks=64, bandwidth=10**9, latency="1us")
    trees = resolve_algorithm("double_binary_tree")

    large = simulate(trees.with_parameters(segments=64), nbytes=2**22, topology=topology)
    small = simulate(trees.with_parameters(segments=4), nbytes=2**12, topology=topology)
    ring = simulate("ring", nbytes=2**12, topology=topology)

    assert large.seconds < 1.15 * 2 * 2**22 / 10**9
    assert small.seconds < 0.2 * ring.seconds
