"""Diameter, bisection, oversubscription and link classes, against what is known of regular networks."""

import math

import networkx
from hypothesis import given
from hypothesis import strategies as st

from sim.topology import Topology
from testbed.studies.network_survey import (
    bisection,
    diameter,
    kind_of,
    link_classes,
    maximum_flow,
    oversubscription,
    pairs_of,
)
from tests.sim.networks import networks

RATE = st.integers(1, 10**12)
LINK = {"latency": "1us"}


def flow(topology):
    return bisection(topology, pairs_of(topology)).bandwidth


@given(networks())
def test_every_link_is_in_one_class(topology):
    classes = link_classes(topology)

    assert sum(own.count for own in classes) == topology.num_links
    assert len({(own.ends, own.bandwidth, own.latency_ps) for own in classes}) == len(classes)


@given(networks())
def test_the_diameter_is_that_of_the_longest_route(topology):
    found = diameter(topology, pairs_of(topology))

    pairs = [(a, b) for a in range(topology.num_ranks) for b in range(topology.num_ranks) if a != b]
    routes = [topology.route(*pair) for pair in pairs] or [()]
    assert found.hops == max(map(len, routes))
    assert found.latency_ps == max(
        int(sum(topology.link_latency[link] for link in route)) for route in routes
    )


def test_the_diameter_of_a_large_torus_is_found_among_samples():
    topology = Topology.torus(shape=(16, 16, 16), bandwidth=1, **LINK)

    assert diameter(topology, pairs_of(topology)).hops == 24


@given(networks())
def test_no_bisection_is_above_what_half_of_the_ranks_can_send(topology):
    found, ranks = flow(topology), topology.num_ranks
    wiring = topology.routing.wiring()
    if len(wiring.joins) or ranks == 1:
        return

    half = (ranks + 1) // 2
    assert 0 < found <= int(topology.link_bandwidth[wiring.tail < half].astype(object).sum())


@given(st.integers(2, 40), RATE)
def test_half_of_the_ranks_on_a_switch_can_send_to_the_other_half(num_ranks, rate):
    assert flow(Topology.switch(num_ranks=num_ranks, bandwidth=rate, **LINK)) == num_ranks // 2 * rate


@given(st.lists(st.sampled_from([1, 2, 4, 6]), min_size=1, max_size=3), RATE)
def test_a_torus_is_narrowest_across_its_longest_dimension(shape, rate):
    """Dally and Towles, section 5.1.2: 2 k^(n-1) links each way; a dimension of size 2 has single links."""
    topology = Topology.torus(shape=shape, bandwidth=rate, **LINK)

    across = min((math.prod(shape) // size * min(size - 1, 2) for size in shape if size > 1), default=None)
    assert flow(topology) == (None if across is None else across * rate)


@given(st.sampled_from([2, 4, 6]), st.sampled_from([1, 2, 4]))
def test_a_fat_tree_has_full_bisection_divided_by_its_oversubscription(k, oversubscription_):
    topology = Topology.fat_tree(k=k, bandwidth=4 * 10**9, oversubscription=oversubscription_, **LINK)

    assert flow(topology) == k**3 // 8 * 4 * 10**9 // oversubscription_
    worst = oversubscription(topology)
    assert worst is None or worst.ratio == oversubscription_


@given(st.integers(1, 4), st.integers(2, 3), st.integers(1, 3), st.integers(1, 10**9), st.integers(1, 10**9))
def test_leaves_with_thin_uplinks_are_oversubscribed_and_bound_the_bisection(
    pairs, hosts_per_spine, spines, rate, uplink
):
    hosts = hosts_per_spine * spines
    rates = {"bandwidth": rate, "uplink_bandwidth": uplink, **LINK}
    topology = Topology.leaf_spine(
        num_ranks=2 * pairs * hosts, hosts_per_leaf=hosts, num_spines=spines, **rates
    )
    worst = oversubscription(topology)

    assert worst.ratio == hosts * rate / (spines * uplink)
    assert flow(topology) == pairs * min(hosts * rate, spines * uplink)


def test_links_that_no_route_has_carry_nothing_and_one_rank_has_no_bisection():
    inside = {"ranks_per_node": 8, "intra_bandwidth": 300, "intra_latency": 0}
    one_node = Topology.nodes(num_nodes=1, nics_per_node=4, nic_bandwidth=25, nic_latency=0, **inside)
    alone = Topology.switch(num_ranks=1, bandwidth=1, **LINK)

    assert flow(one_node) == 4 * 300
    assert flow(alone) is None
    assert oversubscription(alone) is None
    assert diameter(alone, pairs_of(alone)).hops == 0


def test_a_vertex_is_of_the_kind_that_its_name_says_without_numbers():
    names = ["rank 12", "node 3 NIC 0 out", "gpu7", "leaf-2.1", "switch", "17"]

    assert [kind_of(name) for name in names] == ["rank", "node NIC", "gpu", "leaf", "switch", "vertex"]


VERTICES = st.integers(0, 6)


@given(
    st.dictionaries(st.tuples(VERTICES, VERTICES).filter(lambda ends: ends[0] != ends[1]), st.integers(0, 9))
)
def test_a_flow_is_the_largest(capacities):
    edges = [(tail, head, most) for (tail, head), most in capacities.items()]
    graph = networkx.DiGraph()
    graph.add_nodes_from((0, 1))
    graph.add_weighted_edges_from(edges, weight="capacity")

    assert maximum_flow(edges, 0, 1) == networkx.maximum_flow_value(graph, 0, 1)
