"""Gloo's all-to-all: every message waits for at most one, that which comes the other way."""

import pytest

from collectives import Send, simulate, verify
from collectives.algorithms.gloo.all_to_all import gloo_all_to_all
from sim import Topology


@pytest.mark.costly
@pytest.mark.parametrize("world_size", range(1, 10))
def test_it_is_an_all_to_all(world_size):
    verify(gloo_all_to_all, world_size)


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
