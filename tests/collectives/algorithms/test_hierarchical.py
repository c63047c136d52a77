"""Programs of two levels: their parts, and messages within nodes and between them."""

import math
from math import gcd
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import (
    Copy,
    NotSupportedError,
    Send,
    UnknownAlgorithmError,
    algorithm,
    resolve_algorithm,
    verify,
)
from collectives.algorithms import hierarchical, hierarchical_all_to_all, tree
from collectives.algorithms.shared.embedding import Group, embed
from collectives.program import as_step
from collectives.timing.cost import selector_on
from sim.scenario.rank_overhead import RankOverhead
from sim.topology.description import load_network
from sim.units import SECOND


@given(world_size=st.integers(2, 32), ranks_per_node=st.integers(1, 9))
def test_a_smaller_last_node_costs_no_more_than_a_full_one(world_size, ranks_per_node):
    proof = verify(f"hierarchical:ranks_per_node={ranks_per_node}", world_size)

    size = min(ranks_per_node, world_size)
    nodes = -(-world_size // size)
    full = size * nodes
    assert proof.num_steps == 2 * (size - 1) + 2 * (nodes - 1)
    assert math.isclose(proof.max_bytes_sent_fraction, 2 * (full - 1) / full)


def test_nodes_of_nodes_are_proved():
    middle = resolve_algorithm("hierarchical:ranks_per_node=2,outer=hierarchical:ranks_per_node=8")

    assert verify(middle, 32).num_steps == verify(middle, 31).num_steps == 2 * (2 - 1 + 8 - 1 + 2 - 1)


def test_parts_are_bound_as_algorithms_and_spelled_as_their_names():
    text = "hierarchical:ranks_per_node=4,inner=halving_doubling,outer=chain:segments=2"
    bound = resolve_algorithm(text)

    outer = bound.parameters["outer"]
    inner = bound.parameters["inner"]
    assert (outer.name, outer.collective, dict(outer.parameters)) == ("chain", "all_reduce", {"segments": 2})
    assert (inner.reduce_scatter.collective, inner.all_gather.collective) == ("reduce_scatter", "all_gather")
    assert str(bound) == text
    assert bound == resolve_algorithm(text)


@pytest.mark.parametrize(
    ("parameters", "refused"),
    [
        ("outer=rign", "unknown algorithm 'rign' for all_reduce; did you mean 'ring'"),
        ("inner=tree", "unknown algorithm 'tree' for reduce_scatter; .*shipped: "),
        ("inner=pat:segments=2", "algorithm pat has no parameter 'segments'"),
    ],
)
def test_a_part_that_does_not_exist_is_refused_by_its_name(parameters, refused):
    with pytest.raises(UnknownAlgorithmError, match=refused):
        resolve_algorithm(f"hierarchical:{parameters}")


@pytest.mark.parametrize("array_form", [True, False])
def test_parts_may_be_algorithms_of_ones_own(array_form):
    @algorithm(array_form=array_form, num_chunks=tree.num_chunks, cost=tree.cost)
    def mine(rank: int, world_size: int) -> Any:
        return tree(rank, world_size)

    placed = hierarchical.with_parameters(ranks_per_node=2, outer=mine)
    proof, shipped = verify(placed, 6), verify("hierarchical:ranks_per_node=2,outer=tree", 6)

    assert (proof.num_steps, proof.cost_declared) == (shipped.num_steps, True)
    assert str(placed) == "hierarchical:ranks_per_node=2,outer=mine"


@pytest.mark.parametrize("names", [{"inner": "ring"}, {"outer": "tree"}])
def test_names_of_parts_in_python_are_refused_with_what_takes_them(names):
    refused = r"made of algorithms, got inner=.* resolve_algorithm\('hierarchical:inner=NAME,outer=NAME'\)"

    with pytest.raises(TypeError, match=refused):
        list(hierarchical(0, 8, **names))
    with pytest.raises(TypeError, match=refused):
        hierarchical.with_parameters(**names).num_chunks(8)


def test_a_program_that_copies_chunks_cannot_be_embedded():
    @algorithm(num_chunks=2)
    def copies(rank: int, world_size: int) -> Any:
        yield Copy(0, 1)

    with pytest.raises(NotSupportedError, match="copies for all_reduce moves chunks about"):
        list(embed(copies, Group(0, 2, first=0), first_chunk=0, num_chunks=4, of=4))


@given(world_size=st.integers(2, 32), ranks_per_node=st.integers(1, 9))
def test_it_is_right_on_nodes_of_any_size_in_two_steps(world_size, ranks_per_node):
    proof = verify(f"hierarchical:ranks_per_node={ranks_per_node}", world_size, collective="all_to_all")

    assert proof.num_steps == (1 if gcd(world_size, ranks_per_node) in (1, world_size) else 2)


def test_a_rank_sends_one_message_to_each_of_its_node_and_of_its_rail():
    steps = hierarchical_all_to_all(11, 32, ranks_per_node=8)

    peers = [own.peer for step in steps for own in as_step(step) if isinstance(own, Send)]

    assert sorted(peers[:7]) == [8, 9, 10, 12, 13, 14, 15]
    assert sorted(peers[7:]) == [3, 19, 27]


def test_auto_takes_it_where_each_message_costs_something_and_bytes_as_well():
    topology = load_network("dgx-h100").topology(64)
    selector = selector_on(topology, "auto", rank_overhead=RankOverhead(overhead_ps=SECOND // 10**6))

    chosen = [str(selector.select("all_to_all", nbytes)) for nbytes in (2**12, 2**22)]

    assert chosen == ["bruck", "hierarchical:ranks_per_node=8"]
    assert str(selector_on(topology, "auto").select("all_to_all", 2**22)) == "direct"
