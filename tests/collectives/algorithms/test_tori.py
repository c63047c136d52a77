"""Programs made for tori."""

import pytest

from collectives import Recv, RecvReduce, Send, resolve_algorithm, simulate
from sim import Topology
from tests.collectives.sends import sends

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather")


def test_peers_swing_to_and_fro_as_in_the_paper():
    peers = [send.peer for _, _, send in sends(resolve_algorithm("swing"), 16, [0])]

    assert peers == [1, 16 - 1, 3, 16 - 5, 16 - 5, 3, 16 - 1, 1]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_for_a_power_of_two_each_step_is_one_message_each_way(collective):
    for step in resolve_algorithm("swing", collective).steps(5, 32):
        assert sum(isinstance(operation, Send) for operation in step) <= 1
        assert sum(isinstance(operation, (Recv, RecvReduce)) for operation in step) <= 1


def test_of_an_odd_number_the_last_rank_exchanges_with_each_other_one_once():
    steps = list(resolve_algorithm("swing", "reduce_scatter").steps(10, 11))

    sends = [operation for step in steps for operation in step if isinstance(operation, Send)]
    receives = [operation for step in steps for operation in step if isinstance(operation, RecvReduce)]
    assert sorted(send.peer for send in sends) == sorted(receive.peer for receive in receives)
    assert sorted(send.peer for send in sends) == list(range(10))
    assert {receive.chunk for receive in receives} == {10}


def test_on_a_torus_the_dimensions_take_turns():
    swing = resolve_algorithm("swing:shape=8x4", "reduce_scatter")

    assert [send.peer for _, _, send in sends(swing, 32, [0])] == [1, 1 * 8, 7, 3 * 8, 3]


def test_on_a_torus_bytes_cross_fewer_links_than_if_its_ranks_were_one_ring():
    def links(shape):
        total = 0
        for rank, _, send in sends(resolve_algorithm(f"swing:shape={shape}"), 64):
            for stride in (1, 8):
                apart = (send.peer // stride - rank // stride) % 8
                total += send.num_chunks * min(apart, 8 - apart)
        return total

    assert links("8x8") < 0.75 * links("64")


@pytest.mark.parametrize(("world_size", "buffers"), [(8, 2.0), (16, 2.375), (32, 2.75), (64, 3.09375)])
def test_on_a_ring_of_links_it_costs_the_load_of_its_busiest_links(world_size, buffers):
    """The sum over steps of the largest load of a link, counted apart from this code."""
    topology = Topology.ring(num_ranks=world_size, bandwidth="1GB/s", latency="0s")

    run = simulate("swing", nbytes=world_size * 10**6, topology=topology)

    assert run.seconds == pytest.approx(buffers * world_size * 1e-3, rel=1e-12)


def test_all_messages_go_to_neighbours_and_colors_use_all_directions_at_once():
    steps = list(resolve_algorithm("bucket:shape=4x4,colors=4").steps(5, 16))

    for step in steps:
        assert {operation.peer for operation in step if isinstance(operation, Send)} == {6, 9, 4, 1}


def test_on_a_ring_of_links_two_colors_take_half_the_time_of_one():
    topology = Topology.ring(num_ranks=8, bandwidth="1GB/s", latency="0s")

    def seconds(colors):
        return simulate(f"bucket:shape=8,colors={colors}", nbytes=16 * 10**6, topology=topology).seconds

    assert seconds(1) == simulate("ring", nbytes=16 * 10**6, topology=topology).seconds
    assert seconds(2) == seconds(1) / 2
