"""Ranks sit where a placement says, each at a place of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import TopologyError
from sim.topology import Topology
from sim.topology.placement import places
from tests.given import nodes

LINKS = {"bandwidth": "100Gbps", "latency": "2us"}


def test_round_robin_puts_the_next_rank_on_the_next_node():
    assert places("round_robin", nodes(3, 2)) == (0, 2, 4, 1, 3, 5)


def test_round_robin_passes_over_a_node_that_is_full():
    assert places("round_robin", nodes(3, 3, num_ranks=7)) == (0, 3, 6, 1, 4, 2, 5)


@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_round_robin_uses_every_place_once_and_nodes_in_turn(num_nodes, ranks_per_node, data):
    num_ranks = data.draw(st.integers(1, num_nodes * ranks_per_node))
    placed = places("round_robin", nodes(num_nodes, ranks_per_node, num_ranks=num_ranks))

    assert sorted(placed) == list(range(num_ranks))
    turns = [place % ranks_per_node for place in placed]
    assert turns == sorted(turns)


@pytest.mark.parametrize("make", [Topology.switch, Topology.ring])
def test_round_robin_is_packed_where_there_are_no_nodes(make):
    topology = make(num_ranks=6, **LINKS)

    assert places("round_robin", topology) == places("packed", topology) == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("given_one", [[5, 0, 3], (2,), [0, 1, 2, 3, 4, 5]])
def test_a_list_says_where_each_rank_is_and_how_many_take_part(given_one):
    assert places(given_one, Topology.switch(num_ranks=6, **LINKS)) == tuple(given_one)


@pytest.mark.parametrize(
    ("placement", "said"),
    [
        ("scattered", "placement: expected 'packed', 'round_robin' or a list of places, got 'scattered'"),
        ([], "placement: expected a place for each rank, got none"),
        ([0, 6], "placement of rank 1: switch has places 0 to 5, got 6"),
        ([-1], "placement of rank 0: switch has places 0 to 5, got -1"),
        ([0, 3, 0], "placement: ranks 0 and 2 are both at place 0; give each its own"),
        ([0, True], "placement of rank 1: switch has places 0 to 5, got True"),
        ([0, "1"], "placement of rank 1: switch has places 0 to 5, got '1'"),
    ],
)
def test_a_placement_that_cannot_be_is_refused(placement, said):
    with pytest.raises(TopologyError, match=f"^{said}"):
        places(placement, Topology.switch(num_ranks=6, **LINKS))
