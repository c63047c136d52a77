"""Partitions: which groups are siblings."""

from __future__ import annotations

import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from collectives.virtual import run
from collectives.virtual.folding.partitions import Partitions
from collectives.virtual.world import VirtualWorld
from sim.errors import RankError
from tests.given import switch


def test_groups_of_a_mesh_are_siblings_along_each_dimension() -> None:
    def work(rank: int) -> None:
        dist.init_process_group("gloo")
        init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))

    partitions = VirtualWorld.of(run(work, network=switch(8)).cluster).partitions

    assert partitions.partition((0, 1), 0) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert partitions.partition((1, 3), 0) == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert partitions.partition((0, 4), 0) == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert partitions.partition(tuple(range(8)), 0) == (tuple(range(8)),)
    assert [partitions.sibling((0, 4), 0, rank) for rank in (0, 4, 3)] == [(0, 4), (0, 4), (3, 7)]


def test_parts_of_a_split_are_siblings_though_a_rank_makes_only_its_own() -> None:
    def work(rank: int) -> None:
        dist.init_process_group("gloo")
        world = dist.group.WORLD
        dist.split_group(world, [[0, 1], [2, 3]])

    partitions = VirtualWorld.of(run(work, network=switch(4)).cluster).partitions

    assert partitions.partition((2, 3), 0) == ((0, 1), (2, 3))


def test_groups_of_the_same_ranks_are_told_apart_also_where_they_are_made_by_turns() -> None:
    partitions = Partitions()

    ordinals = [partitions.announce(0, hosts) for hosts in [(0, 1), (0, 1), (2, 3), (2, 3), (0, 2), (1, 3)]]

    assert ordinals == [0, 1, 0, 1, 0, 0]
    assert partitions.partition((0, 1), 1) == ((0, 1), (2, 3))
    assert partitions.partition((2, 3), 0) == ((0, 1), (2, 3))
    assert partitions.partition((0, 2), 0) == ((0, 2), (1, 3))


def test_groups_of_other_sizes_or_none_hold_no_sibling() -> None:
    partitions = Partitions()
    for hosts in [(0, 1, 2), (3, 4)]:
        partitions.announce(0, hosts)

    assert partitions.sibling((0, 1, 2), 0, 3) is None
    assert partitions.sibling((3, 4), 0, 5) is None


def test_a_group_that_is_joined_has_the_ordinal_it_was_announced_with() -> None:
    partitions = Partitions()
    partitions.join(0, (0, 1))
    partitions.announce(0, (0, 1))

    assert partitions.join(0, (0, 1)) == 1
    assert partitions.join(0, (0, 1)) == 2
    assert partitions.join(1, (0, 1)) == 0


def test_groups_that_a_rank_is_not_in_count_for_the_names_of_its_own() -> None:
    def work(rank: int) -> str:
        dist.init_process_group("gloo")
        for first in (0, 2):
            pair = dist.new_group([first, first + 1])
            assert dist.get_rank(pair) == (rank - first if rank in (first, first + 1) else -1)
        own = dist.new_group([rank], use_local_synchronization=False)
        return str(own.group_name)

    assert run(work, network=switch(4)).results == ["3", "3", "3", "3"]


def test_a_group_of_ranks_that_there_are_not_is_refused_where_others_would_be_in_it() -> None:
    def work(rank: int) -> None:
        dist.init_process_group("gloo")
        dist.new_group([3, 4])

    with pytest.raises(RankError, match="Rank 4 is out of range"):
        run(work, network=switch(4))
