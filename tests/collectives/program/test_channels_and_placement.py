"""Channels of a program, and where its ranks are."""

import functools
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from collectives import NotSupportedError, connect, resolve_algorithm, simulate, verify
from collectives.algorithms import ALGORITHMS
from collectives.program.channels import in_channels, order_of_ranks
from collectives.program.placement import on_nodes
from collectives.virtual import run_virtual
from tests.given import nodes


@given(
    shipped=st.sampled_from(ALGORITHMS),
    channels=st.integers(1, 4),
    world_size=st.integers(1, 10),
    ranks_per_node=st.integers(1, 4),
)
def test_every_shipped_algorithm_is_right_on_channels_at_no_more_steps(
    shipped, channels, world_size, ranks_per_node
):
    root = world_size // 2
    on_channels = in_channels(shipped, channels).with_parameters(ranks_per_node=ranks_per_node)
    if "ranks_per_node" in shipped.parameter_names():
        shipped = shipped.with_parameters(ranks_per_node=ranks_per_node)
    try:
        alone = verify(shipped, world_size, root=root)
    except NotSupportedError:
        with pytest.raises(NotSupportedError):
            verify(on_channels, world_size, root=root)
        return

    proof = verify(on_channels, world_size, root=root)

    assert proof.num_chunks == channels * alone.num_chunks
    assert proof.num_steps >= alone.num_steps
    assert proof.max_bytes_sent_fraction <= alone.max_bytes_sent_fraction


@given(world_size=st.integers(1, 40), channel=st.integers(0, 20), ranks_per_node=st.integers(1, 9))
def test_an_order_visits_every_rank_once_and_node_by_node(world_size, channel, ranks_per_node):
    order = order_of_ranks(world_size, channel, ranks_per_node)
    nodes = [rank // ranks_per_node for rank in order]

    assert sorted(order) == list(range(world_size))
    assert nodes == sorted(nodes) or ranks_per_node == 1


def test_a_ring_per_network_card_uses_all_cards_of_a_node():
    rates = {"intra_bandwidth": "1TB/s", "nic_bandwidth": "1GB/s"}
    topology = nodes(4, 4, 4, intra_latency="0s", nic_latency="0s", **rates)
    one, four = (
        simulate(f"ring:channels={channels},ranks_per_node=4", nbytes=2**24, topology=topology)
        for channels in (1, 4)
    )

    assert one.time_ps == pytest.approx(4 * four.time_ps, rel=0.02)


@pytest.mark.parametrize(
    ("name", "collective", "runs"),
    [("double_binary_tree", "all_reduce", 1), ("tree", "broadcast", 4)],  # the root has four positions
)
def test_channels_that_run_a_program_alike_run_it_once_for_all_ranks(name, collective, runs):
    shipped = resolve_algorithm(name, collective)
    made = []

    @functools.wraps(shipped.program)
    def counted(rank, world_size, **parameters):
        made.append(parameters)
        yield from shipped.program(rank, world_size, **parameters)

    on_channels = in_channels(replace(shipped, program=counted), 8).with_parameters(ranks_per_node=4)

    assert len(list(on_channels.steps_over_ranks(16))) > 1
    assert len(made) == runs


@pytest.mark.parametrize("channels", [0, -1, 65, "many", 1.5])
def test_a_number_of_channels_that_cannot_be_is_refused(channels):
    with pytest.raises(NotSupportedError, match="channels must be from 1 to 64, got"):
        in_channels(resolve_algorithm("ring"), channels)


HIERARCHICAL = resolve_algorithm("hierarchical")


@pytest.mark.parametrize(
    ("ranks", "bound"),
    [
        (range(12), 4), (range(10), 4), (range(3), 3), ([0, 1, 4, 5, 8, 9], 2), ([0, 1, 2, 4, 5, 6, 8], 3),
        ([0, 4, 8], 1), ([0, 4, 1, 5], 1), ([1, 2, 3, 4, 5, 6, 7], 3), ([3, 4, 5, 6, 7], 1),
        ([2, 3, 4, 5, 6, 7], 2),
    ],
)  # fmt: skip
def test_a_node_is_as_many_neighbours_as_share_one_everywhere(ranks, bound):
    placed = on_nodes(HIERARCHICAL, 4, ranks)

    assert str(placed) == f"hierarchical:ranks_per_node={bound}"


@given(
    ranks=st.lists(st.integers(0, 30), min_size=1, max_size=20, unique=True), ranks_per_node=st.integers(1, 8)
)
def test_ranks_said_to_share_a_node_do(ranks, ranks_per_node):
    size = on_nodes(HIERARCHICAL, ranks_per_node, ranks).parameters["ranks_per_node"]

    for start in range(0, len(ranks), size):
        assert len({rank // ranks_per_node for rank in ranks[start : start + size]}) == 1


def test_a_node_size_that_is_given_is_kept_and_programs_that_do_not_ask_are_left_alone():
    given_one, ring = resolve_algorithm("hierarchical:ranks_per_node=3"), resolve_algorithm("ring")

    assert on_nodes(given_one, 4, range(8)) is given_one
    assert on_nodes(ring, 4, range(8)) is ring


@pytest.mark.parametrize("num_ranks", [16, 14, 3])
def test_a_simulation_takes_the_node_size_of_its_network(num_ranks):
    topology = nodes(4, 4, 4, num_ranks=num_ranks)

    by_itself = simulate("hierarchical", nbytes=2**20, topology=topology)
    given_one = simulate(f"hierarchical:ranks_per_node={min(4, num_ranks)}", nbytes=2**20, topology=topology)

    assert by_itself == given_one


def test_a_virtual_run_places_the_members_of_each_group():
    def work(rank):
        dist.init_process_group("gloo")
        halves = dist.new_group([0, 1, 4, 5])
        groups = [dist.group.WORLD, halves] if rank in (0, 1, 4, 5) else [dist.group.WORLD]
        names = []
        for group in groups:
            communicator = connect(group, "hierarchical")
            tensor = torch.ones(100)
            communicator.all_reduce(tensor)
            assert tensor.tolist() == [communicator.world_size] * 100
            names.append(str(communicator.launcher.selector.select("all_reduce", 8)))
        return names

    run = run_virtual(work, nodes(2, 4, 4))

    world, half = "hierarchical:ranks_per_node=4", "hierarchical:ranks_per_node=2"
    assert run.results == [[world, half] if rank in (0, 1, 4, 5) else [world] for rank in range(8)]
