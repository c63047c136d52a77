"""Node sizes that nobody gave: from the topology, from the launcher, for groups of any members."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from collectives import Step, algorithm, connect, resolve_algorithm, simulate
from collectives.program.placement import on_nodes
from collectives.virtual import run_virtual
from tests.given import nodes

HIERARCHICAL = resolve_algorithm("hierarchical")


@pytest.mark.parametrize(
    ("ranks", "bound"),
    [
        (range(12), 4),
        (range(10), 4),
        (range(3), 3),
        ([0, 1, 4, 5, 8, 9], 2),
        ([0, 1, 2, 4, 5, 6, 8], 3),
        ([0, 4, 8], 1),
        ([0, 4, 1, 5], 1),
        ([1, 2, 3, 4, 5, 6, 7], 3),
        ([3, 4, 5, 6, 7], 1),
        ([2, 3, 4, 5, 6, 7], 2),
    ],
)
def test_a_node_is_as_many_neighbours_as_share_one_everywhere(ranks: Any, bound: int) -> None:
    placed = on_nodes(HIERARCHICAL, 4, ranks)

    assert str(placed) == f"hierarchical:ranks_per_node={bound}"


@given(
    ranks=st.lists(st.integers(0, 30), min_size=1, max_size=20, unique=True), ranks_per_node=st.integers(1, 8)
)
def test_ranks_said_to_share_a_node_do(ranks: list[int], ranks_per_node: int) -> None:
    size = on_nodes(HIERARCHICAL, ranks_per_node, ranks).parameters["ranks_per_node"]

    for start in range(0, len(ranks), size):
        assert len({rank // ranks_per_node for rank in ranks[start : start + size]}) == 1


def test_a_node_size_that_is_given_is_kept_and_programs_that_do_not_ask_are_left_alone() -> None:
    given_one, ring = resolve_algorithm("hierarchical:ranks_per_node=3"), resolve_algorithm("ring")

    assert on_nodes(given_one, 4, range(8)) is given_one
    assert on_nodes(ring, 4, range(8)) is ring


@pytest.mark.parametrize("num_ranks", [16, 14, 3])
def test_a_simulation_takes_the_node_size_of_its_network(num_ranks: int) -> None:
    topology = nodes(4, 4, 4, num_ranks=num_ranks)

    by_itself = simulate("hierarchical", nbytes=2**20, topology=topology)
    given_one = simulate(f"hierarchical:ranks_per_node={min(4, num_ranks)}", nbytes=2**20, topology=topology)

    assert by_itself == given_one


def test_channels_are_in_the_order_of_the_networks_nodes() -> None:
    by_itself, given_one, flat = (
        simulate(f"ring:channels=4{more}", nbytes=2**24, topology=nodes(4, 4, 4))
        for more in ("", ",ranks_per_node=4", ",ranks_per_node=1")
    )

    assert by_itself == given_one
    assert by_itself.seconds < flat.seconds


def test_a_program_of_ones_own_that_asks_is_told_too() -> None:
    told = []

    @algorithm()
    def asks(rank: int, world_size: int, *, ranks_per_node: int = 1) -> Iterator[Step]:
        told.append(ranks_per_node)
        yield from resolve_algorithm("ring")(rank, world_size)

    simulate(asks, nbytes=2**20, topology=nodes(4, 2, 2))

    assert {*told} == {2}


def test_a_virtual_run_places_the_members_of_each_group() -> None:
    def work(rank: int) -> list[str]:
        dist.init_process_group("gloo")
        halves = dist.new_group([0, 1, 4, 5])
        groups = [dist.group.WORLD, halves] if rank in (0, 1, 4, 5) else [dist.group.WORLD]
        names = []
        for group in groups:
            communicator: Any = connect(group, "hierarchical")
            tensor = torch.ones(100)
            communicator.all_reduce(tensor)
            assert tensor.tolist() == [communicator.world_size] * 100
            names.append(str(communicator.launcher.selector.select("all_reduce", 8)))
        return names

    run = run_virtual(work, nodes(2, 4, 4))

    world, half = "hierarchical:ranks_per_node=4", "hierarchical:ranks_per_node=2"
    assert run.results == [[world, half] if rank in (0, 1, 4, 5) else [world] for rank in range(8)]
