"""Networks without some links: other routes where there are any, and an error where there are none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from sim.errors import TopologyError
from sim.topology import Topology
from tests.sim.networks import networks

LINKS = {"bandwidth": "100Gbps", "latency": "2us"}


@given(networks(max_ranks=16), st.data())
def test_routes_avoid_the_links_and_those_that_did_before_stay_as_they_were(topology, data):
    links = data.draw(st.sets(st.integers(0, max(0, topology.num_links - 1)), max_size=2))
    try:
        less = topology.without_links(links)
    except TopologyError:
        reject()

    for source in range(topology.num_ranks):
        for destination in {*range(topology.num_ranks)} - {source}:
            before, after = topology.route(source, destination), less.route(source, destination)
            assert links.isdisjoint(after)
            assert before == after or not links.isdisjoint(before)
    assert np.array_equal(less.link_bandwidth, topology.link_bandwidth)


def test_a_ring_without_a_link_goes_the_other_way_round():
    ring = Topology.ring(num_ranks=6, **LINKS)
    (link,) = ring.route(2, 3)

    detour = [ring.link_name(link) for link in ring.without_links([link]).route(2, 3)]

    assert detour == ["rank 2 to 1", "rank 1 to 0", "rank 0 to 5", "rank 5 to 4", "rank 4 to 3"]


def test_what_a_failed_uplink_carried_is_spread_over_the_others():
    tree = Topology.fat_tree(k=16, **LINKS)
    ranks = np.arange(tree.num_ranks)
    broken = tree.routes([0], [64])[0, 2]
    sources, destinations = (side.ravel() for side in np.meshgrid(ranks, ranks[::3]))
    apart = sources != destinations
    pairs = sources[apart], destinations[apart]
    touched = (tree.routes(*pairs) == broken).any(axis=1)

    less = tree.without_links([broken]).routes(*(side[touched] for side in pairs))

    assert touched.any()
    assert not (less == broken).any()
    assert len(np.unique(less[:, 2])) > 32


def test_avoided_links_add_up():
    tree = Topology.leaf_spine(num_ranks=8, hosts_per_leaf=4, num_spines=3, uplink_bandwidth="1Gbps", **LINKS)
    spines = [
        next(link for link in range(tree.num_links) if tree.link_name(link) == f"leaf 0 to spine {n}")
        for n in range(3)
    ]

    one_left = tree.without_links(spines[:1]).without_links(spines[1:2])

    assert one_left.route(0, 7)[1] == spines[2]
    assert one_left.digest() == tree.without_links(spines[:2]).digest()
    with pytest.raises(
        TopologyError, match="leaf 0 to spine 2: ranks 4, 5, 6, 7 cut off from the other ranks"
    ):
        one_left.without_links(spines[2:])


def test_a_rank_that_is_cut_off_is_named_and_so_is_the_link():
    switch = Topology.switch(num_ranks=20, **LINKS)

    with pytest.raises(
        TopologyError, match=r"^switch without rank 0 down: rank 0 cut off from the other ranks$"
    ):
        switch.without_links([20])
    with pytest.raises(TopologyError, match="ranks 0, 1, 2, 3, 4, 5, 6, 7 and more cut off"):
        switch.without_links(range(9))
    with pytest.raises(TopologyError, match="link 40: switch has links 0 to 39"):
        switch.without_links([40])


def test_a_lost_network_card_is_replaced_by_one_of_a_neighbour():
    nodes = Topology.nodes(
        num_nodes=2,
        ranks_per_node=2,
        intra_bandwidth=1,
        intra_latency=0,
        nics_per_node=2,
        nic_bandwidth=1,
        nic_latency=0,
    )
    (up, _) = nodes.route(0, 2)

    assert [nodes.link_name(link) for link in nodes.without_links([up]).route(0, 2)] == [
        "rank 0 up", "rank 1 down", "node 0 NIC 1 up", "node 1 NIC 0 down",
    ]  # fmt: skip
