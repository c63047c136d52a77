"""Partitions of ranks into sibling groups, and divisions of tensors over ranks."""

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh

from collectives.virtual.folding.divisions import Flat, Rows, Shares
from collectives.virtual.folding.partitions import Partitions
from collectives.virtual.world import VirtualWorld
from sim.errors import RankError
from tests.collectives.virtual.clusters import Work, in_group


def made_by(work: Work, num_ranks: int) -> Partitions:
    return VirtualWorld.of(in_group(work, num_ranks).cluster).partitions


def test_groups_of_a_mesh_are_siblings_along_each_dimension():
    partitions = made_by(
        lambda rank: init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp")), 8
    )

    assert partitions.of((0, 1), 0).groups == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert partitions.of((1, 3), 0).groups == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert partitions.of((0, 4), 0).groups == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert partitions.of(tuple(range(8)), 0).groups == [tuple(range(8))]
    assert [partitions.of((0, 4), 0).group_of.get(rank) for rank in (0, 4, 3)] == [(0, 4), (0, 4), (3, 7)]


def test_parts_of_a_split_are_siblings_though_a_rank_makes_only_its_own():
    partitions = made_by(lambda rank: dist.split_group(dist.group.WORLD, [[0, 1], [2, 3]]), 4)

    assert partitions.of((2, 3), 0).groups == [(0, 1), (2, 3)]


def test_groups_of_the_same_ranks_are_told_apart_also_where_they_are_made_by_turns():
    partitions = Partitions()

    ordinals = [partitions.announce(0, hosts) for hosts in [(0, 1), (0, 1), (2, 3), (2, 3), (0, 2), (1, 3)]]

    assert ordinals == [0, 1, 0, 1, 0, 0]
    assert partitions.of((0, 1), 1).groups == [(0, 1), (2, 3)]
    assert partitions.of((2, 3), 0).groups == [(0, 1), (2, 3)]
    assert partitions.of((0, 2), 0).groups == [(0, 2), (1, 3)]


def test_groups_of_other_sizes_or_none_hold_no_sibling():
    partitions = Partitions()
    for hosts in [(0, 1, 2), (3, 4)]:
        partitions.announce(0, hosts)

    assert partitions.of((0, 1, 2), 0).group_of.get(3) is None
    assert partitions.of((3, 4), 0).group_of.get(5) is None


def test_a_group_that_is_joined_has_the_ordinal_it_was_announced_with():
    partitions = Partitions()
    partitions.join(0, (0, 1))
    partitions.announce(0, (0, 1))

    assert partitions.join(0, (0, 1)) == 1
    assert partitions.join(0, (0, 1)) == 2
    assert partitions.join(1, (0, 1)) == 0


def test_groups_that_a_rank_is_not_in_count_for_the_names_of_its_own():
    def work(rank):
        for first in (0, 2):
            pair = dist.new_group([first, first + 1])
            assert dist.get_rank(pair) == (rank - first if rank in (first, first + 1) else -1)
        own = dist.new_group([rank], use_local_synchronization=False)
        return str(own.group_name)

    assert in_group(work, 4).results == ["3", "3", "3", "3"]


def test_a_group_of_ranks_that_there_are_not_is_refused_where_others_would_be_in_it():
    with pytest.raises(RankError, match="Rank 4 is out of range"):
        in_group(lambda rank: dist.new_group([3, 4]), 4)


@given(st.integers(0, 60), st.integers(1, 12))
def test_rows_are_divided_as_torch_divides_them(size, parts):
    chunks = [len(chunk) for chunk in torch.zeros(size).chunk(parts)] if size else []

    lengths = [Rows(size, parts).part(number) for number in range(parts)]

    assert lengths == chunks + [0] * (parts - len(chunks))
    assert Rows(size, parts).is_even == (len(set(lengths)) == 1)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 5))
def test_pieces_of_a_flat_tensor_are_those_that_its_chunks_hold(sizes, parts):
    length = -(-sum(sizes) // parts)
    owners = [number for number, size in enumerate(sizes) for _ in range(size)]

    flat = Flat(tuple(sizes), parts, length)

    for part in range(parts):
        held = owners[part * length : (part + 1) * length]
        assert flat.part(part) == tuple(held.count(owner) for owner in dict.fromkeys(held))


def test_shares_are_even_where_all_ranks_have_tensors_of_the_same_sizes():
    assert Shares(((4, 2), (4, 2))).is_even
    assert not Shares(((4, 2), (2, 4))).is_even
