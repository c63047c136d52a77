"""Routes lead from rank to rank over links that exist; formulas agree with a search."""

from collections import deque
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Topology, TopologyError
from sim.topology.kinds.cluster import ClusterRouting
from sim.topology.kinds.graph import GraphRouting
from sim.topology.routing import DetourRouting
from tests.given import nodes
from tests.sim.networks import detours, networks, pairs_of

LINKS = {"bandwidth": "100Gbps", "latency": "2us"}

CLUSTER = {"ranks_per_node": 2, "intra_bandwidth": 100, "nic_bandwidth": 50, "nodes_per_leaf": 1}
CLUSTERS = (
    {}, {"oversubscription": 2}, {"rails": 1}, {"pxn": False},
    {"intra_link": "pcie", "intra_latency": "300ns"}, {"nodes_per_pod": 2},
    {"routing": "static", "uplinks_per_leaf": 2}, {"routing": "ecmp", "uplinks_per_leaf": 2},
    {"routing": "ecmp", "uplinks_per_leaf": 2, "seed": 1},
)  # fmt: skip
TREE = {"hosts_per_leaf": 4, "uplink_bandwidth": "200Gbps", **LINKS}


def topologies() -> st.SearchStrategy[Topology]:
    return st.one_of(networks(max_ranks=20), detours(max_ranks=16))


@given(topologies())
def test_routes_of_all_pairs_at_once_are_those_of_each_pair(topology):
    pairs = pairs_of(topology)

    table = topology.routes([s for s, _ in pairs], [d for _, d in pairs])

    assert table.dtype == np.int64
    assert table.shape[0] == len(pairs)
    for row, (source, destination) in zip(table.tolist(), pairs, strict=True):
        route = topology.route(source, destination)
        assert all(type(link) is int for link in route)
        assert row == [*route, *[-1] * (len(row) - len(route))]


@pytest.mark.parametrize(
    ("source", "destination", "said"),
    [(0, 4, "rank 4: switch has ranks 0 to 3"), (-1, 0, "rank -1"), (2, 2, "rank 2: there is no route")],
)
def test_routes_that_cannot_be_are_refused(source, destination, said):
    topology = Topology.switch(num_ranks=4, **LINKS)

    with pytest.raises(TopologyError, match=said):
        topology.route(source, destination)
    with pytest.raises(TopologyError, match=said):
        topology.routes([0, source], [1, destination])
    with pytest.raises(TopologyError, match="link 8: switch has links 0 to 7"):
        topology.link_name(8)


def square(**how) -> Topology:
    """Return four ranks a, b, c, d with cables around; across, two ways are equally long."""
    cables = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    links = [(*ends, 10**9, 1000) for cable in cables for ends in (cable, cable[::-1])]
    return Topology.graph(ranks=["a", "b", "c", "d"], links=links, **how)


@given(topologies())
def test_a_route_is_a_path_on_the_wiring_over_each_link_once_and_none_is_shorter(topology):
    wiring = topology.routing.wiring()
    assert len({topology.link_name(link) for link in range(topology.num_links)}) == topology.num_links
    assert len(wiring.tail) == len(wiring.head) == topology.num_links
    assert len(set(wiring.names)) == len(wiring.names)
    links = list(zip(wiring.tail.tolist(), wiring.head.tolist(), strict=True))
    avoided = topology.routing.avoided if isinstance(topology.routing, DetourRouting) else ()
    usable = [ends for link, ends in enumerate(links) if link not in avoided]
    joins = {tuple(join) for join in wiring.joins.tolist()}
    passed = joins | {(vertex, vertex) for vertex in range(len(wiring.names))}

    for source in range(topology.num_ranks):
        steps = fewest_links(usable, joins, source)
        for destination in {*range(topology.num_ranks)} - {source}:
            route = topology.route(source, destination)
            assert not {*route} & {*avoided}
            assert len({*route}) == len(route) > 0
            walk = [(source, source), *(links[link] for link in route), (destination, destination)]
            assert all((before[1], after[0]) in passed for before, after in pairwise(walk))
            longer = len(route) > steps[destination]
            assert len(route) >= steps[destination]
            assert not longer or leaves_by_one_card(topology)


def leaves_by_one_card(topology: Topology) -> bool:
    """Return whether all cards of a node are at hand, and a message takes one, however long the way."""
    base = topology.routing.base if isinstance(topology.routing, DetourRouting) else topology.routing
    return isinstance(base, ClusterRouting) and (base.over_pcie or base.pxn)


def fewest_links(links, joins, source: int) -> dict[int, int]:
    """Return the least number of links from *source* to each vertex."""
    steps, waiting = {source: 0}, deque([source])
    edges = [(*join, 0) for join in joins] + [(*link, 1) for link in links]
    outward = {}
    for tail, head, cost in edges:
        outward.setdefault(tail, []).append((head, cost))
    while waiting:
        here = waiting.popleft()
        for head, cost in outward.get(here, []):
            if steps[here] + cost < steps.get(head, len(edges) + 1):
                steps[head] = steps[here] + cost
                waiting.append(head)
    return steps


@given(topologies())
def test_a_message_between_groups_of_a_cut_crosses_its_links_on_a_regular_network_once(topology):
    for cut in topology.routing.cuts():
        group, sides = cut.group_of, (cut.links_out, cut.links_in)
        assert group.shape == (topology.num_ranks,)
        assert len(cut.links_out) == len(cut.links_in) > group.max(initial=-1)
        for ends in pairs_of(topology):
            route, apart = set(topology.route(*ends)), group[ends[0]] != group[ends[1]]
            out, into = (
                len(route & set(links[group[end]].tolist())) if group[end] >= 0 else None
                for end, links in zip(ends, sides, strict=True)
            )
            if isinstance(topology.routing, DetourRouting | GraphRouting):  # whose ranks pass messages on
                assert not apart or (out != 0 and into != 0)
                continue
            climbs = cut.name == "scalable unit" and not apart  # perhaps to another rail
            assert out == into <= 1
            assert climbs or out == apart


@given(topologies())
def test_no_way_leads_out_of_a_group_without_its_links_out_nor_into_it_without_those_in(topology):
    wiring = topology.routing.wiring()
    joins = wiring.joins.tolist()
    links = list(zip(wiring.tail.tolist(), wiring.head.tolist(), strict=True))
    avoided = {*topology.routing.avoided} if isinstance(topology.routing, DetourRouting) else set()

    for cut in topology.routing.cuts():
        for number in {*cut.group_of.tolist()} - {-1}:
            group = set(np.flatnonzero(cut.group_of == number).tolist())
            for boundary, forward in ((cut.links_out, True), (cut.links_in, False)):
                barred = {*boundary[number].tolist()} | avoided
                left = [ends for link, ends in enumerate(links) if link not in barred]
                ways = [(*way, 0) for way in [*joins, *left]]
                reached = fewest_links([way[:2] if forward else way[1::-1] for way in ways], [], min(group))
                assert {rank for rank in reached if rank < topology.num_ranks} <= group


def test_a_digest_tells_networks_apart_by_behaviour_and_not_by_name():
    switch = {"num_ranks": 4, **LINKS}
    different = [
        Topology.switch(**switch), Topology.ring(**switch), Topology.switch(**{**switch, "num_ranks": 5}),
        Topology.switch(**{**switch, "latency": "3us"}), Topology.switch(**{**switch, "bandwidth": "25Gbps"}),
        nodes(2, 4, 2), nodes(2, 4, 1), Topology.torus(shape=(2, 2), **LINKS),
        Topology.leaf_spine(num_ranks=4, **TREE), Topology.leaf_spine(num_ranks=4, **TREE, num_spines=2),
        Topology.leaf_spine(num_ranks=4, **TREE, num_spines=2, routing="ecmp"),
        Topology.leaf_spine(num_ranks=4, **TREE, num_spines=2, routing="ecmp", seed=1),
        Topology.leaf_spine(num_ranks=4, **TREE, num_spines=2).without_links([8]),
        Topology.fat_tree(k=4, num_ranks=4, **LINKS),
        Topology.fat_tree(k=4, num_ranks=4, oversubscription=2, **LINKS),
        Topology.fat_tree(k=4, num_ranks=4, routing="spray", **LINKS),
        *(Topology.cluster(num_ranks=8, **CLUSTER, **how) for how in CLUSTERS),
        *(square(**how) for how in ({}, {"routing": "ecmp"}, {"routing": "ecmp", "seed": 1})),
        square(routes={("a", "c"): ["d"]}), square().without_links([0]),
        replace(Topology.switch(**switch), in_network_reduction=True),
    ]  # fmt: skip

    assert len({topology.digest() for topology in different}) == len(different)
    assert Topology.switch(**switch, name="mine").digest() == different[0].digest()


def test_a_topology_cannot_be_changed():
    topology = Topology.switch(num_ranks=4, **LINKS)

    with pytest.raises(ValueError, match="read-only"):
        topology.link_bandwidth[0] = 1


@given(st.integers(2, 12), st.integers(2, 12))
def test_half_a_torus_sends_to_the_other_over_two_rings_links_for_each_row(rows, columns):
    halves = [
        cut for cut in Topology.torus(shape=(rows, columns), **LINKS).routing.cuts() if cut.name == "half"
    ]

    widths = [cut.links_out.shape for cut in halves]
    expected = {(2, other * min(size - 1, 2)) for size, other in ((rows, columns), (columns, rows))}
    assert {*widths} == expected
    assert widths[0][1] <= widths[-1][1] or 2 in (rows, columns)
