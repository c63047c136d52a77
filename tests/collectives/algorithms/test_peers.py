"""Peers: who exchanges with whom in which step, and how that fits rings, tori, trees and nodes."""

from collections import defaultdict
from typing import TypeAlias

import numpy as np
import pytest

from collectives import NotSupportedError, Recv, RecvReduce, Send, resolve_algorithm, simulate, verify
from collectives.algorithms.double_binary_tree import two_trees
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


@pytest.mark.parametrize("world_size", [3, 5, 6, 7, 12, 31, 33])
def test_other_world_sizes_fold_in_and_out(world_size):
    for order in ("far", "near"):
        algorithm = f"halving_doubling:order={order}"
        below = 1 << world_size.bit_length() - 1

        folded, core = verify(algorithm, world_size), verify(algorithm, below)

        assert folded.num_steps == core.num_steps + 2
        assert folded.max_bytes_sent_fraction == core.max_bytes_sent_fraction + 1
    for collective in ("reduce_scatter", "all_gather"):
        folded = verify("halving_doubling", world_size, collective=collective)

        assert folded.num_steps == verify("halving_doubling", below, collective=collective).num_steps + 2
        with pytest.raises(NotSupportedError, match=r"is for powers of two, got \d+ ranks; use order=far"):
            verify("halving_doubling:order=near", world_size, collective=collective)


def test_the_orders_differ_in_who_exchanges_the_largest_messages():
    def first_peers(order):
        algorithm = resolve_algorithm(f"halving_doubling:order={order}")
        return [next(algorithm.steps(rank, 8))[0].peer for rank in range(8)]

    assert first_peers("far") == [4, 5, 6, 7, 0, 1, 2, 3]
    assert first_peers("near") == [1, 0, 3, 2, 5, 4, 7, 6]


@pytest.mark.parametrize(("world_size", "far", "near"), [(8, 5.25, 3.0), (32, 21.3125, 5.0)])
def test_on_a_ring_the_near_order_keeps_the_large_messages_close(world_size, far, near):
    topology = Topology.ring(num_ranks=world_size, bandwidth="1GB/s", latency="0s")

    seconds = {
        order: simulate(f"halving_doubling:order={order}", nbytes=2**20, topology=topology).seconds
        for order in ("far", "near")
    }

    assert seconds["near"] * 1e9 / 2**20 == pytest.approx(near)
    assert seconds["far"] * 1e9 / 2**20 == pytest.approx(far)


Message: TypeAlias = tuple[int, int, int]
"""Source, destination, chunks."""

COUNTERPARTS = {
    "broadcast": "tree", "reduce": "tree", "gather": "tree", "scatter": "tree",
    "all_reduce": "recursive_doubling",
}  # fmt: skip


def steps_of(algorithm: str, collective: str, world_size: int) -> list[list[Message]]:
    """Return the steps_of of all ranks, step by step."""
    by_step = defaultdict(list)
    for rank, step, send in sends(resolve_algorithm(algorithm, collective), world_size):
        by_step[step].append((rank, send.peer, send.num_chunks))
    return [by_step[step] for step in sorted(by_step)]


def flat(steps: list[list[Message]]) -> list[Message]:
    return [message for step in steps for message in step]


def negabinary(number: int, num_digits: int) -> int:
    """Return the digits of *number*, modulo ``2^num_digits``, to the base -2."""
    digits = 0
    for place in range(num_digits):
        digits |= (number & 1) << place
        number = -(number >> 1)
    return digits


@pytest.mark.parametrize("num_digits", range(1, 8))
def test_a_child_has_the_number_of_its_parent_to_the_base_minus_two_with_equal_lowest_digits_flipped(
    num_digits,
):
    steps = steps_of("bine", "broadcast", 2**num_digits)

    for step, sent in zip(reversed(range(num_digits)), steps, strict=True):
        for parent, child, _ in sent:
            lowest = (1 << step + 1) - 1
            digits = negabinary(parent, num_digits)
            assert negabinary(child, num_digits) == digits ^ lowest
            assert digits & lowest in (0, lowest)


def distance(source: int, destination: int, world_size: int) -> int:
    return min((source - destination) % world_size, (destination - source) % world_size)


def crossings(source: int, destination: int, world_size: int) -> int:
    """Return how often they are on other nodes of eight, wherever nodes begin.

    The binomial tree has the better of it where ranks fill nodes.
    """
    return sum((source + begin) // 8 != (destination + begin) // 8 for begin in range(8))


@pytest.mark.parametrize("collective", COUNTERPARTS)
@pytest.mark.parametrize("world_size", [32, 64, 128])
@pytest.mark.parametrize(("measure", "least"), [(distance, 0.75), (crossings, 0.9)])
def test_bytes_travel_less_far_round_a_ring_and_cross_between_fewer_nodes_than_those_of_its_counterpart(
    collective, world_size, measure, least
):
    ours, theirs = (
        sum(
            chunks * measure(source, destination, world_size)
            for source, destination, chunks in flat(steps_of(algorithm, collective, world_size))
        )
        for algorithm in ("bine", COUNTERPARTS[collective])
    )

    assert ours < least * theirs


def test_pairs_of_the_all_reduce_are_those_of_swing():
    pairs = [{(a, b) for a, b, _ in step} for step in steps_of("bine", "all_reduce", 32)]

    assert pairs == [{(a, b) for a, b, _ in step} for step in steps_of("swing", "all_reduce", 32)[:5]]


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
