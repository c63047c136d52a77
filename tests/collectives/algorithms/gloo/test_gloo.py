"""Gloo's own programs."""

from __future__ import annotations

from itertools import pairwise

import pytest

from collectives import Send, simulate
from collectives.algorithms import NATIVE_ALGORITHMS
from collectives.algorithms.gloo.all_to_all import gloo_all_to_all
from collectives.algorithms.gloo.ring import gloo_ring, gloo_ring_reduce
from collectives.algorithms.gloo.tree import gloo_tree_broadcast
from collectives.program.chunking import Chunking
from sim import Topology
from tests.collectives.sends import sends

KIB, MIB = 1 << 10, 1 << 20

EXCHANGED = {
    "all_reduce": {(0, 3): 1.5, (1, 0): 1.5, (2, 1): 1.5, (3, 2): 1.5},
    "all_gather": {(0, 1): 0.75, (1, 2): 0.75, (2, 3): 0.75, (3, 0): 0.75},
    "broadcast": {(1, 2): 1.0, (1, 3): 1.0, (2, 0): 1.0},
    "reduce": {(0, 1): 0.25, (0, 3): 0.75, (1, 0): 0.75, (2, 1): 1.0, (3, 1): 0.25, (3, 2): 0.75},
    "reduce_scatter": {(0, 3): 1.5, (1, 0): 1.5, (2, 1): 1.5, (3, 2): 1.5},
}
"""Parts of a buffer of 1 MiB that went from rank to rank under torch 2.13, 4 ranks, root 1: ``ss -ti``."""


def exchanged(algorithm, world_size, nbytes):
    chunking = Chunking.of(algorithm, world_size, nbytes, 1)
    sent = {}
    for rank, _, send in sends(algorithm, world_size):
        pair = rank, send.peer
        sent[pair] = sent.get(pair, 0) + chunking.nbytes(send.chunk, send.num_chunks)
    return {pair: moved / nbytes for pair, moved in sorted(sent.items())}


@pytest.mark.parametrize("collective", EXCHANGED)
def test_each_pair_of_ranks_exchanges_what_it_does_under_torch(collective):
    (native,) = [own for own in NATIVE_ALGORITHMS if own.collective == collective]
    if "root" in native.parameter_names():
        native = native.with_parameters(root=1)

    assert exchanged(native, 4, MIB) == EXCHANGED[collective]


def test_a_reduce_of_large_buffers_passes_on_more_than_is_needed_as_under_torch():
    native = gloo_ring_reduce.with_parameters(root=1, segments=4)

    sent = exchanged(native, 4, 16 * MIB)

    assert sent == {(0, 1): 0.25, (0, 3): 0.875, (1, 0): 0.875, (2, 1): 1.125, (3, 1): 0.25, (3, 2): 0.875}


@pytest.mark.parametrize("world_size", [2, 4, 7])
def test_gloo_s_ring_takes_as_long_as_ours_on_a_switch(world_size):
    switch = Topology.switch(num_ranks=world_size, bandwidth="10Gbps", latency="5us")
    nbytes = world_size * 64 * KIB

    times = [simulate(name, nbytes=nbytes, topology=switch).time_ps for name in ("ring", gloo_ring)]

    assert times[0] == times[1]


def test_a_rank_of_the_tree_serves_its_nearest_child_first():
    served = [send.peer for _, _, send in sends(gloo_tree_broadcast, 9, [0])]

    assert served == [1, 2, 4, 8]
    assert all(later == 2 * earlier for earlier, later in pairwise(served))


@pytest.mark.parametrize("world_size", [2, 4, 5, 8])
def test_messages_wait_half_the_ranks_up_and_every_second_one_above(world_size):
    waiting = {
        (rank, operation.peer)
        for rank in range(world_size)
        for operation in list(gloo_all_to_all.steps(rank, world_size))[-1]
        if isinstance(operation, Send) and operation.chunk >= world_size
    }

    assert waiting == {
        (low, high)
        for high in range(world_size)
        for low in range(high)
        if 2 * (high - low) == world_size or (2 * (high - low) > world_size and (high - low) % 2 == 0)
    }


def test_of_four_ranks_four_messages_follow_each_other_instead_of_three():
    switch = Topology.switch(num_ranks=4, bandwidth=1e6, latency=0)
    run = simulate(
        "native", nbytes=4_000_000, topology=switch, collective="all_to_all", transport_model="gloo"
    )

    assert run.seconds == pytest.approx(4)
