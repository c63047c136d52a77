"""Kinds of networks: the routes and the links of each, what is refused, and where ranks sit."""

import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.topology import Topology
from sim.topology.kinds import KINDS
from sim.topology.placement import places
from tests.given import nodes
from tests.sim.networks import names

GB = 10**9
US = 10**6
LINKS = {"bandwidth": "100Gbps", "latency": "2us"}
INSIDE = {"intra_bandwidth": "300GB/s", "intra_latency": "500ns"}
NICS = {"nic_bandwidth": "200Gbps", "nic_latency": "2us"}
GOOD: dict[str, dict[str, Any]] = {
    "switch": {"num_ranks": 4, **LINKS},
    "ring": {"num_ranks": 6, **LINKS},
    "torus": {"shape": (3, 4), **LINKS},
    "nodes": {"num_nodes": 2, "ranks_per_node": 4, **INSIDE, "nics_per_node": 2, **NICS},
    "leaf_spine": {"num_ranks": 16, "hosts_per_leaf": 4, "uplink_bandwidth": "200Gbps", **LINKS},
    "fat_tree": {"k": 4, **LINKS},
    "cluster": {
        "num_ranks": 64, "ranks_per_node": 8, "nodes_per_leaf": 4,
        "intra_bandwidth": "450GB/s", "nic_bandwidth": "400Gbps",
    },
    "host": {"num_ranks": 3, "memory_bandwidth": "30GB/s", **LINKS},
    "graph": {"ranks": ["a", "b"], "links": [("a", "b", 1, 0), ("b", "a", 1, 0)]},
}  # fmt: skip
RACKS = {"nodes_per_leaf": 2, "rails": 1, "nodes_per_pod": 4, "routing": "static"}


def made(kind: str, change: dict[str, Any]) -> Topology:
    return getattr(Topology, kind)(**{**GOOD[kind], **change})


ROUTES = [
    ("switch", {}, (3, 1), "rank 3 up, rank 1 down"),
    ("ring", {}, (0, 3), "rank 0 to 1, rank 1 to 2, rank 2 to 3"),
    ("ring", {}, (5, 2), "rank 5 to 0, rank 0 to 1, rank 1 to 2"),
    ("ring", {}, (1, 5), "rank 1 to 0, rank 0 to 5"),
    ("torus", {}, (1, 11), "rank 1 to 9, rank 9 to 10, rank 10 to 11"),
    ("nodes", {}, (1, 2), "rank 1 up, rank 2 down"),
    ("nodes", {}, (1, 6), "node 0 NIC 0 up, node 1 NIC 1 down"),
    ("nodes", {}, (0, 7), "node 0 NIC 0 up, node 1 NIC 1 down"),
    ("nodes", {"num_ranks": 6}, (0, 5), "node 0 NIC 0 up, node 1 NIC 0 down"),
    ("host", {}, (2, 0), "rank 2 writes, memory, rank 0 reads"),
    ("leaf_spine", {"num_spines": 2}, (0, 3), "rank 0 up, rank 3 down"),
    ("leaf_spine", {"num_spines": 2}, (0, 7),
     "rank 0 up, leaf 0 to spine 1, spine 1 to leaf 1, rank 7 down"),
    ("fat_tree", {}, (0, 1), "rank 0 up, rank 1 down"),
    ("fat_tree", {}, (0, 3), "rank 0 up, edge 0 to aggregation 1, aggregation 1 to edge 1, rank 3 down"),
    ("fat_tree", {}, (0, 15),
     "rank 0 up, edge 0 to aggregation 1, aggregation 1 to core 3, core 3 to aggregation 7, "
     "aggregation 7 to edge 7, rank 15 down"),
    ("cluster", {"pxn": None}, (7, 8), "rank 7 up, rank 0 down, node 0 NIC 0 up, node 1 NIC 0 down"),
    ("cluster", {"pxn": False}, (7, 8),
     "node 0 NIC 7 up, leaf 7 to spines, spines to leaf 0, node 1 NIC 0 down"),
    ("cluster", {"pxn": None}, (1, 2), "rank 1 up, rank 2 down"),
    ("cluster", {"pxn": False}, (1, 2), "rank 1 up, rank 2 down"),
    ("cluster", {"intra_link": "pcie"}, (3, 11),
     "rank 3 up, node 0 NIC 3 up, node 1 NIC 3 down, rank 11 down"),
    ("cluster", {"num_ranks": 1024, "nodes_per_leaf": 32}, (3, 251), "node 0 NIC 3 up, node 31 NIC 3 down"),
    ("cluster", RACKS, (0, 15), "node 0 NIC 0 up, node 1 NIC 7 down"),
    ("cluster", RACKS, (0, 16), "node 0 NIC 0 up, leaf 0 to spine 0, spine 0 to leaf 1, node 2 NIC 0 down"),
    ("cluster", RACKS, (0, 63),
     "node 0 NIC 0 up, leaf 0 to spine 15, spine 15 to core 31, core 31 to spine 31, spine 31 to leaf 3, "
     "node 7 NIC 7 down"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "change", "pair", "route"), ROUTES)
def test_a_message_takes_the_way_of_its_kind(kind, change, pair, route):
    assert names(made(kind, change), *pair) == route


RATES = [
    ("switch", {}, (0, 1), [12.5 * GB] * 2, [2 * US] * 2),
    ("nodes", {}, (1, 2), [300 * GB] * 2, [US / 2] * 2),
    ("nodes", {}, (1, 6), [25 * GB] * 2, [2 * US] * 2),
    ("nodes", {"nics_per_node": 16}, (1, 6), [100 * GB] * 2, [2 * US] * 2),
    ("host", {}, (0, 1), [12.5 * GB, 30 * GB, 12.5 * GB], [2 * US, 0, 2 * US]),
    ("leaf_spine", {}, (0, 4), [12.5 * GB, 25 * GB, 25 * GB, 12.5 * GB], [2 * US] * 4),
    ("leaf_spine", {"uplink_latency": "5us"}, (0, 4),
     [12.5 * GB, 25 * GB, 25 * GB, 12.5 * GB], [2 * US, 5 * US, 5 * US, 2 * US]),
    ("fat_tree", {"oversubscription": 2.5}, (0, 15), [12.5 * GB, *[5 * GB] * 4, 12.5 * GB], [2 * US] * 6),
    ("cluster", {"oversubscription": 2, "pxn": False}, (7, 32 + 7),
     [50 * GB, 100 * GB, 100 * GB, 50 * GB], [1.35 * US, 0.15 * US, 0.15 * US, 1.35 * US]),
    ("cluster", {"nics_per_node": 32, "pxn": False}, (7, 32 + 7),
     [200 * GB, 800 * GB, 800 * GB, 200 * GB], [1.35 * US, 0.15 * US, 0.15 * US, 1.35 * US]),
    ("cluster", {}, (0, 1), [450 * GB] * 2, [0.3 * US] * 2),
    ("cluster", {"intra_link": "pcie"}, (0, 1), [450 * GB] * 2, [0.5 * US] * 2),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "change", "pair", "bandwidth", "latency"), RATES)
def test_links_have_what_their_kind_says(kind, change, pair, bandwidth, latency):
    topology = made(kind, change)
    route = list(topology.route(*pair))

    assert topology.link_bandwidth[route].tolist() == bandwidth
    assert topology.link_latency[route].tolist() == latency


@pytest.mark.parametrize(
    ("kind", "change", "num_ranks", "ranks_per_node"),
    [
        ("switch", {}, 4, 1), ("nodes", {}, 8, 4), ("nodes", {"num_ranks": 3}, 3, 3),
        ("nodes", {"num_nodes": None, "num_ranks": 6}, 6, 4), ("host", {}, 3, 3), ("fat_tree", {}, 16, 1),
        ("fat_tree", {"oversubscription": 2.5}, 16, 1), ("cluster", {}, 64, 8),
    ],
)  # fmt: skip
def test_ranks_are_counted_and_those_of_a_node(kind, change, num_ranks, ranks_per_node):
    topology = made(kind, change)

    assert (topology.num_ranks, topology.ranks_per_node) == (num_ranks, ranks_per_node)


NO_COUNT = "expected a whole number of at least 1, got"

NO_RANKS = ("torus", "graph")
REFUSED = [
    *((kind, {"num_ranks": 0}, f"num_ranks: {NO_COUNT} 0") for kind in GOOD if kind not in NO_RANKS),
    *((kind, {"bandwidth": -5}, "bandwidth: -5 is not positive") for kind in ("switch", "ring", "host")),
    *((kind, {"latency": "soon"}, "latency: cannot read 'soon'") for kind in ("switch", "torus", "fat_tree")),
    ("switch", {"fabric": "token-ring"}, "fabric: expected one of ethernet-tcp, .*, got 'token-ring'"),
    ("switch", {"sharing": {"oneway": [1.0]}}, "sharing: expected one_way and both_ways, got 'oneway'"),
    ("torus", {"shape": ()}, "shape: expected the sizes of the dimensions"),
    ("torus", {"shape": (4, 0)}, f"shape: {NO_COUNT} 0"),
    ("torus", {"shape": 64}, "shape: expected .* got 64"),
    ("nodes", {"num_nodes": 0}, f"num_nodes: {NO_COUNT} 0"),
    ("nodes", {"num_nodes": None}, "num_nodes: expected a number of nodes, or num_ranks, got neither"),
    ("nodes", {"ranks_per_node": 2.0}, f"ranks_per_node: {NO_COUNT} 2.0"),
    ("nodes", {"num_ranks": 9}, "num_ranks: 9 ranks, but 2 nodes of 4 hold 8"),
    ("nodes", {"num_ranks": True}, f"num_ranks: {NO_COUNT} True"),
    ("nodes", {"nics_per_node": 3}, "nics_per_node: 3 neither divides ranks_per_node, 4, nor is a multiple"),
    ("nodes", {"nic_bandwidth": -1}, "nic_bandwidth: -1 is not positive"),
    ("nodes", {"intra_latency": "-2us"}, "intra_latency: '-2us' is negative"),
    ("host", {"cache_speedup": 0.5}, "cache_speedup: expected 1 to 1000, got 0.5"),
    ("leaf_spine", {"hosts_per_leaf": 0}, f"hosts_per_leaf: {NO_COUNT} 0"),
    ("leaf_spine", {"num_spines": -1}, f"num_spines: {NO_COUNT} -1"),
    ("leaf_spine", {"routing": "random"}, "routing: expected 'static', 'ecmp' or 'spray', got 'random'"),
    ("leaf_spine", {"routing": "ecmp", "seed": -1}, "seed: expected a whole number of at least 0, got -1"),
    ("leaf_spine", {"uplink_bandwidth": "0Gbps"}, "uplink_bandwidth"),
    ("fat_tree", {"k": 5}, "k: expected an even number of ports, got 5"),
    ("fat_tree", {"num_ranks": 17}, "num_ranks: 17 ranks, but .* holds 16"),
    *(("fat_tree", {"oversubscription": ratio}, "oversubscription: expected a number such as 4 .* got ")
      for ratio in (0, "x", float("inf"), 1e99)),
    ("cluster", {"nics_per_node": 3}, "nics_per_node: 3 neither divides ranks_per_node, 8, nor"),
    ("cluster", {"rails": 3}, "rails: 3 does not divide nics_per_node, 8"),
    ("cluster", {"nodes_per_leaf": 0}, f"nodes_per_leaf: {NO_COUNT} 0"),
    ("cluster", {"nodes_per_pod": 6}, "nodes_per_pod: 6 is no multiple of nodes_per_leaf, 4"),
    ("cluster", {"oversubscription": 0}, "oversubscription: expected a number such as 4"),
    ("cluster", {"core_oversubscription": 2}, "core_oversubscription: without nodes_per_pod there are no co"),
    ("cluster", {"uplinks_per_spine": 2}, "uplinks_per_spine: without nodes_per_pod there are no cores"),
    ("cluster", {"nodes_per_pod": 4, "core_oversubscription": -1}, "core_oversubscription: expected a numb"),
    ("cluster", {"fabric": "myrinet"}, "fabric: expected one of infiniband, spectrum_x, ethernet, got 'myri"),
    ("cluster", {"routing": "best"}, "routing: expected 'static', 'ecmp' or 'spray', got 'best'"),
    ("cluster", {"intra_link": "usb"}, "intra_link: expected one of nvlink, pcie, got 'usb'"),
    ("cluster", {"intra_link": "pcie", "pxn": True}, "pxn: goes over NVLink"),
    ("cluster", {"nic_bandwidth": 2**62}, "nic_bandwidth: 4 links of .* carry together more than 2"),
    ("graph", {"ranks": []}, f"number of ranks: {NO_COUNT} 0"),
    ("graph", {"ranks": ["a", "a"]}, "'a': two ranks or switches have this name; give each its own"),
    ("graph", {"switches": ["b"]}, "'b': two ranks or switches have this name"),
    ("graph", {"links": [("a", "x", 1, 0)]}, "link 'a' to 'x': there is no 'x'"),
    ("graph", {"links": [("a", "a", 1, 0)]}, "link 'a' to 'a': a link has two different ends"),
    ("graph", {"links": [("a", "b", 0, 0)]}, f"link 'a' to 'b', bytes per second: {NO_COUNT} 0"),
    ("graph", {"links": [("a", "b", 1, -1)]}, "link 'a' to 'b', latency in picoseconds: expected .* got -1"),
    ("graph", {"links": [("a", "b", 1, 0)]}, "'b' cannot reach 'a': no links lead there"),
    ("graph", {"links": [("b", "a", 1, 0)]}, "'a' cannot reach 'b': no links lead there"),
    ("graph", {"links": [("a", "b", 1, 2**62)], "metric": "latency"}, "latency: .* is too long"),
    ("graph", {"metric": "cost"}, "metric: expected 'hops' or 'latency', got 'cost'"),
    ("graph", {"routing": "static"}, "routing: expected 'shortest' or 'ecmp', got 'static'"),
    ("graph", {"ranks_per_node": 0}, f"ranks_per_node: {NO_COUNT} 0"),
    ("graph", {"routes": {("a", "x"): []}}, "route 'a' to 'x': there is no rank 'x'"),
    ("graph", {"routes": {("a", "b"): ["x"]}}, "route 'a' to 'b': there is no link 'a' to 'x'"),
    ("graph", {"routes": {("a", "a"): []}}, "route 'a' to 'a': comes twice by the same place"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "change", "said"), REFUSED)
def test_a_network_that_cannot_be_is_refused_by_the_name_of_what_is_wrong(kind, change, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        made(kind, change)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_constructor_shows_the_arguments_and_the_documentation_of_its_kind(kind):
    constructor = getattr(Topology, kind)
    signature = inspect.signature(constructor)

    assert signature.parameters == inspect.signature(KINDS[kind]).parameters
    assert signature.return_annotation == "Topology"
    assert constructor.__doc__ == KINDS[kind].__doc__


CABLES = [("a", "s"), ("b", "s"), ("c", "t"), ("d", "t"), ("s", "t")]
THREES = {"num_nodes": 3, "ranks_per_node": 3, "nics_per_node": 3}
TWO_SWITCHES = {
    "ranks": ["a", "b", "c", "d"],
    "switches": ["s", "t"],
    "links": [(*ends, 1, 0) for cable in CABLES for ends in (cable, cable[::-1])],
}


@pytest.mark.parametrize(
    ("kind", "change", "order"),
    [
        ("switch", {}, (0, 1, 2, 3)), ("ring", {}, (0, 1, 2, 3, 4, 5)),
        ("nodes", {"num_nodes": 3, "ranks_per_node": 2}, (0, 2, 4, 1, 3, 5)),
        ("nodes", {**THREES, "num_ranks": 7}, (0, 3, 6, 1, 4, 2, 5)),
        ("leaf_spine", {"num_ranks": 8}, (0, 4, 1, 5, 2, 6, 3, 7)),
        ("fat_tree", {"num_ranks": 8}, (0, 2, 4, 6, 1, 3, 5, 7)), ("graph", TWO_SWITCHES, (0, 2, 1, 3)),
        ("graph", {**TWO_SWITCHES, "ranks_per_node": 3}, (0, 3, 1, 2)),
    ],
)  # fmt: skip
def test_round_robin_goes_over_nodes_or_the_switches_that_ranks_are_on_and_passes_over_the_full(
    kind, change, order
):
    topology = made(kind, change)

    assert places("round_robin", topology) == order
    assert places("packed", topology) == tuple(range(topology.num_ranks))


@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_round_robin_uses_every_place_once_and_nodes_in_turn(num_nodes, ranks_per_node, data):
    num_ranks = data.draw(st.integers(1, num_nodes * ranks_per_node))
    placed = places("round_robin", nodes(num_nodes, ranks_per_node, num_ranks=num_ranks))

    assert sorted(placed) == list(range(num_ranks))
    turns = [place % ranks_per_node for place in placed]
    assert turns == sorted(turns)


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
    with pytest.raises(ValueError, match=f"^{said}"):
        places(placement, Topology.switch(num_ranks=6, **LINKS))
