from __future__ import annotations

import math
from typing import Any

import pytest

from collectives import (
    Copy,
    NotSupportedError,
    algorithm,
    algorithm_names,
    resolve_algorithm,
    simulate,
    verify,
)
from collectives.algorithms.embedding import Group, embed
from sim import Topology

SHAPES = [(1, 4), (2, 6), (3, 12), (4, 4), (4, 16), (8, 24)]
"""Ranks per node, and ranks."""

MOVES_CHUNKS = {"swing"}
INNER = sorted({*algorithm_names("reduce_scatter")} & {*algorithm_names("all_gather")} - MOVES_CHUNKS)
OUTER = [name for name in algorithm_names() if name not in ("hierarchical", "one_shot")]


@pytest.mark.parametrize(("ranks_per_node", "world_size"), SHAPES)
def test_with_rings_it_meets_the_bound_in_bytes(ranks_per_node: int, world_size: int) -> None:
    proof = verify(f"hierarchical:ranks_per_node={ranks_per_node}", world_size)

    assert proof.num_steps == 2 * (ranks_per_node - 1) + 2 * (world_size // ranks_per_node - 1)
    assert math.isclose(proof.max_bytes_sent_fraction, proof.min_bytes_sent_fraction)


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("outer", OUTER)
def test_every_combination_of_shipped_algorithms_is_proved_or_refused(inner: str, outer: str) -> None:
    assert verify(f"hierarchical:ranks_per_node=4,inner={inner},outer={outer}", 16).cost_declared
    for ranks_per_node, world_size in SHAPES:
        name = f"hierarchical:ranks_per_node={ranks_per_node},inner={inner},outer={outer}"
        try:
            verify(name, world_size)
        except NotSupportedError as refusal:
            assert "powers of two" in str(refusal)  # noqa: PT017 (most combinations are not refused)


def test_nodes_of_nodes_are_proved() -> None:
    middle = resolve_algorithm("hierarchical:ranks_per_node=2,outer=hierarchical")

    assert verify(middle, 32).num_steps == 2 * (2 - 1) + 2 * (8 - 1) + 2 * (2 - 1)


def test_fewer_ranks_than_a_node_holds_are_one_node() -> None:
    assert verify("hierarchical", 5).num_steps == verify("ring", 5).num_steps


def test_it_beats_the_ring_where_latency_between_nodes_counts() -> None:
    topology = Topology.nodes(
        num_nodes=8,
        ranks_per_node=8,
        intra_bandwidth="300GB/s",
        intra_latency="500ns",
        nics_per_node=8,
        nic_bandwidth="200Gbps",
        nic_latency="2us",
    )

    run = simulate("hierarchical", nbytes=2**20, topology=topology)

    assert run.seconds < simulate("ring", nbytes=2**20, topology=topology).seconds / 2


@pytest.mark.parametrize(("world_size", "fitting"), [(12, 6), (13, 1), (20, 5)])
def test_a_smaller_last_node_is_refused_with_what_to_use(world_size: int, fitting: int) -> None:
    with pytest.raises(NotSupportedError, match=f"use ranks_per_node={fitting}, which divides them"):
        verify("hierarchical", world_size)

    assert verify(f"hierarchical:ranks_per_node={fitting}", world_size).num_steps > 0


def test_nodes_of_no_ranks_are_refused() -> None:
    with pytest.raises(NotSupportedError, match="ranks_per_node must be at least 1, got 0"):
        verify("hierarchical:ranks_per_node=0", 8)


def test_a_program_that_copies_chunks_cannot_be_embedded() -> None:
    @algorithm(num_chunks=2)
    def copies(rank: int, world_size: int) -> Any:
        yield Copy(0, 1)

    with pytest.raises(NotSupportedError, match="copies for all_reduce moves chunks about"):
        list(embed(copies, Group(0, 2, first=0), first_chunk=0, num_chunks=4))
