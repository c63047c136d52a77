"""Clusters of GPU nodes: rails, oversubscribed trees, and messages that are sprayed over equal paths."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import networkx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from collectives import simulate
from sim import load_network
from sim.errors import NetworkFileError, TopologyError
from sim.topology import Topology
from sim.topology.description import parse_network
from sim.units import SECOND
from tests.sim.fluid import fluid
from tests.sim.networks import clusters

ROOT = Path(__file__).parents[3]
H100 = {"ranks_per_node": 8, "intra_bandwidth": "450GB/s", "nic_bandwidth": "400Gbps", "nodes_per_leaf": 4}
FILE = """
schema = 1
kind = "cluster"
ranks_per_node = 8
intra_bandwidth = "450GB/s"
nic_bandwidth = "400Gbps"
nodes_per_leaf = 32
oversubscription = 2
"""
HARDWARE = """
[hardware]
generation = "hopper"
one_node = { count = 12, intra_bandwidth = "30GB/s" }
several_nodes = { count = 8, intra_bandwidth = "45GB/s" }
"""
RATE = 50_000_000_000


def pairs_of(topology: Topology) -> list[tuple[int, int]]:
    ranks = range(topology.num_ranks)
    return [(source, destination) for source in ranks for destination in ranks if source != destination]


def names(topology: Topology, source: int, destination: int) -> list[str]:
    return [topology.link_name(link) for link in topology.route(source, destination)]


DIVISIBLE = 6 * 27720 * 840
"""Bytes/s that the links of small trees can be shared out of without a remainder."""


@st.composite
def twins(draw: st.DrawFn) -> tuple[Topology, Topology]:
    """Draw a tree twice: with its single links, and as one that sprays."""
    rates = st.integers(1, 20).map(lambda number: number * DIVISIBLE)
    kind = draw(st.sampled_from(["cluster", "leaf_spine", "fat_tree"]))
    shape = {"latency": 0, "bandwidth": draw(rates)}
    if kind == "cluster":
        shape = draw(clusters(rates, max_ranks=24))
    elif kind == "leaf_spine":
        shape |= {
            "num_ranks": 12,
            "hosts_per_leaf": draw(st.integers(1, 6)),
            "num_spines": draw(st.integers(1, 4)),
        }
        shape |= {"uplink_bandwidth": draw(rates)}
    else:
        shape |= {"k": draw(st.sampled_from([2, 4])), "oversubscription": draw(st.sampled_from([1, 2, 3]))}
    spread, sprayed = (getattr(Topology, kind)(**{**shape, "routing": how}) for how in ("static", "spray"))
    return spread, sprayed


def over_all_paths(topology: Topology, source: int, destination: int) -> dict[int, Fraction]:
    """Return the part of a flow that crosses each link, if all equal paths through the tree take as much."""
    wiring = topology.routing.wiring()
    in_tree = [name.split()[0] in ("leaf", "spine", "core", "edge", "aggregation") for name in wiring.names]
    ends = list(zip(wiring.tail.tolist(), wiring.head.tolist(), strict=True))
    tree = {pair: link for link, pair in enumerate(ends) if in_tree[pair[0]] and in_tree[pair[1]]}
    route = topology.route(source, destination)
    inner = [link for link in route if ends[link] in tree]
    parts = dict.fromkeys((link for link in route if link not in inner), Fraction(1))
    if inner:
        graph = networkx.DiGraph(list(tree))
        paths = list(networkx.all_shortest_paths(graph, ends[inner[0]][0], ends[inner[-1]][1]))
        crossed = Counter(tree[pair] for path in paths for pair in pairwise(path))
        parts |= {link: Fraction(times, len(paths)) for link, times in crossed.items()}
    return parts


def max_min(flows: list[dict[int, Fraction]], topology: Topology) -> list[Fraction]:
    """Return the rates of flows that put parts of themselves on links, raised until a link is full."""
    rates = [Fraction(0)] * len(flows)
    rising = set(range(len(flows)))
    while rising:
        room = {}
        for link in {link for flow in rising for link in flows[flow]}:
            used = sum(parts.get(link, 0) * rate for parts, rate in zip(flows, rates, strict=True))
            more = sum(flows[flow].get(link, 0) for flow in rising)
            room[link] = (int(topology.link_bandwidth[link]) - used) / more
        step = min(room.values())
        for flow in rising:
            rates[flow] += step
        full = {link for link, left in room.items() if left == step}
        rising = {flow for flow in rising if not full & flows[flow].keys()}
    return rates


def test_five_lines_are_a_rail_optimised_cluster():
    topology = parse_network(FILE, "mine", "mine.toml").topology(1024)

    made = Topology.cluster(num_ranks=1024, **{**H100, "nodes_per_leaf": 32, "oversubscription": 2})
    assert topology.digest() == made.digest()
    assert topology.ranks_per_node == 8
    assert names(topology, 3, 8 * 31 + 3) == ["node 0 NIC 3 up", "node 31 NIC 3 down"]
    uplinks = [link for link in range(topology.num_links) if topology.link_name(link).startswith("leaf")]
    assert topology.link_bandwidth[uplinks].tolist() == [16 * RATE] * 32


def test_the_example_has_three_levels_with_thin_links_to_the_cores():
    topology = load_network(ROOT / "examples" / "gpu_cluster.toml").topology(6144)

    assert names(topology, 0, 6143)[1:3] == ["leaf 0 to pod 0 spines", "pod 0 spines to cores"]
    _, leaf, pod, *_ = topology.link_bandwidth[list(topology.route(0, 6143))].tolist()
    assert pod == 192 * leaf // 7


def test_a_message_to_another_rail_changes_to_it_over_nvlink_or_climbs_to_a_spine():
    with_pxn, without = (Topology.cluster(num_ranks=64, **H100, pxn=pxn) for pxn in (None, False))

    assert names(with_pxn, 7, 8) == ["rank 7 up", "rank 0 down", "node 0 NIC 0 up", "node 1 NIC 0 down"]
    assert names(without, 7, 8) == [
        "node 0 NIC 7 up",
        "leaf 7 to spines",
        "spines to leaf 0",
        "node 1 NIC 0 down",
    ]
    assert names(with_pxn, 1, 2) == names(without, 1, 2) == ["rank 1 up", "rank 2 down"]


def test_with_one_rail_a_rack_has_one_leaf_and_pods_have_spines_of_their_own():
    topology = Topology.cluster(
        num_ranks=64,
        **{**H100, "nodes_per_leaf": 2},
        rails=1,
        nodes_per_pod=4,
        routing="static",
        fabric="ethernet",
    )

    assert names(topology, 0, 15) == ["node 0 NIC 0 up", "node 1 NIC 7 down"]
    assert names(topology, 0, 16) == [
        "node 0 NIC 0 up",
        "leaf 0 to spine 0",
        "spine 0 to leaf 1",
        "node 2 NIC 0 down",
    ]
    assert names(topology, 0, 63) == [
        "node 0 NIC 0 up",
        "leaf 0 to spine 15",
        "spine 15 to core 31",
        "core 31 to spine 31",
        "spine 31 to leaf 3",
        "node 7 NIC 7 down",
    ]


def test_over_pcie_messages_reach_the_card_over_the_link_of_their_rank():
    topology = Topology.cluster(num_ranks=16, **H100, intra_link="pcie")

    assert names(topology, 3, 11) == ["rank 3 up", "node 0 NIC 3 up", "node 1 NIC 3 down", "rank 11 down"]


@given(st.sampled_from(["infiniband", "spectrum_x", "ethernet"]), st.integers(0, 9))
def test_the_fabric_says_how_messages_are_spread_unless_told_otherwise(fabric, seed):
    usual = Topology.cluster(num_ranks=64, **H100, fabric=fabric, seed=seed)
    routing = "ecmp" if fabric == "ethernet" else "spray"
    told = Topology.cluster(num_ranks=64, **H100, routing=routing, seed=seed)

    assert usual.digest() == told.digest()


@given(clusters(st.sampled_from([60, 120]), max_ranks=16), st.data())
def test_a_tree_that_is_not_oversubscribed_takes_as_long_as_one_ideal_switch(shape, data):
    """Uplinks that carry what all cards below do are never full before these, if hops cost no latency."""
    shape |= {
        "routing": "spray",
        "oversubscription": data.draw(st.sampled_from([0.5, 1])),
        "uplink_latency": 0,
    }
    shape |= {"core_oversubscription": 1, "pxn": False, "intra_link": "nvlink"}
    shared = (
        "ranks_per_node",
        "nics_per_node",
        "intra_bandwidth",
        "intra_latency",
        "nic_bandwidth",
        "nic_latency",
    )
    num_nodes = -(-shape["num_ranks"] // shape["ranks_per_node"])
    nodes = Topology.nodes(
        num_nodes=num_nodes, num_ranks=shape["num_ranks"], **{name: shape[name] for name in shared}
    )
    assume(nodes.num_ranks > 1)
    pair = st.sampled_from(pairs_of(nodes))
    messages = data.draw(st.lists(st.tuples(st.integers(0, 3), pair, st.integers(1, 500)), max_size=12))
    sent = [(start * 10**12, *ends, nbytes) for start, ends, nbytes in messages]

    assert fluid(Topology.cluster(**shape), sent) == fluid(nodes, sent)


@pytest.mark.parametrize("ratio", [1, 2, 4, 8])
def test_where_all_messages_cross_a_tree_they_take_longer_by_its_oversubscription(ratio):
    at_no_latency = {"intra_latency": 0, "nic_latency": 0, "uplink_latency": 0}
    topology = Topology.cluster(num_ranks=64, **H100, oversubscription=ratio, **at_no_latency)
    across = [(0, rank, (rank + 32) % 64, RATE) for rank in range(64)]

    assert set(fluid(topology, across)) == {ratio * SECOND}


@given(clusters())
def test_what_leaves_a_unit_or_a_pod_is_what_its_cards_send_over_the_oversubscription(shape):
    topology = Topology.cluster(**{**shape, "routing": "spray"})
    spread = Topology.cluster(**{**shape, "routing": "ecmp"})
    rails, cards = shape["rails"], shape["nics_per_node"]
    leaf = int(
        shape["nodes_per_leaf"]
        * cards
        // rails
        * shape["nic_bandwidth"]
        / Fraction(shape["oversubscription"])
    )
    per_pod = shape.get("nodes_per_pod", 0) // shape["nodes_per_leaf"] * rails
    expected = {
        "leaf": leaf,
        "scalable unit": leaf * rails,
        "pod": leaf * per_pod // shape.get("core_oversubscription", 1),
    }

    for cut, parts in zip(topology.routing.cuts(), spread.routing.cuts(), strict=True):
        if cut.name in expected:
            for links in (cut.links_out, cut.links_in):
                assert set(topology.link_bandwidth[links].sum(axis=1).tolist()) == {expected[cut.name]}
            shared_out = spread.link_bandwidth[parts.links_out].sum(axis=1)
            fewest = expected[cut.name] - parts.links_out.shape[1]
            assert fewest < int(shared_out.max()) <= max(expected[cut.name], parts.links_out.shape[1])


@given(twins(), st.data())
def test_spraying_gives_flows_what_dividing_them_over_all_equal_paths_does(made, data):
    """Over links of the joint bandwidth whole, or over each path an equal part, which are fractions."""
    spread, sprayed = made
    assume(spread.num_ranks > 1)
    flows = data.draw(st.lists(st.sampled_from(pairs_of(spread)), min_size=1, max_size=8))

    whole = [dict.fromkeys(sprayed.route(*flow), Fraction(1)) for flow in flows]
    divided = [over_all_paths(spread, *flow) for flow in flows]

    assert max_min(whole, sprayed) == max_min(divided, spread)


@given(clusters())
def test_where_there_is_one_path_all_routings_are_one_network(shape):
    shape |= {"uplinks_per_leaf": 1, "uplinks_per_spine": 1 if "nodes_per_pod" in shape else None}
    made = [Topology.cluster(**{**shape, "routing": routing}) for routing in ("static", "ecmp", "spray")]
    pairs = np.array(pairs_of(made[0]), dtype=np.int64).reshape(-1, 2)

    for other in made[1:]:
        assert np.array_equal(other.link_bandwidth, made[0].link_bandwidth)
        assert np.array_equal(other.link_latency, made[0].link_latency)
        assert np.array_equal(other.routes(*pairs.T), made[0].routes(*pairs.T))


@given(clusters(), st.integers(1, 6))
def test_the_way_back_is_as_long_as_the_way_there(shape, num_nodes):
    topology = Topology.cluster(**{**shape, "num_ranks": num_nodes * shape["ranks_per_node"]})
    pairs = np.array(pairs_of(topology), dtype=np.int64).reshape(-1, 2)

    there, back = topology.routes(*pairs.T), topology.routes(*pairs.T[::-1])

    for routes in (there, back):
        assert routes.shape[1] <= 8
    latency = np.append(topology.link_latency, 0)
    assert np.array_equal(latency[there].sum(axis=1), latency[back].sum(axis=1))


@given(clusters(max_ranks=16), st.integers(0, 2**64))
def test_a_hash_takes_the_same_paths_each_time(shape, seed):
    shape |= {"routing": "ecmp", "seed": seed}
    first, again = Topology.cluster(**shape), Topology.cluster(**shape)

    assert first.digest() == again.digest()
    assert [first.route(*pair) for pair in pairs_of(first)] == [
        again.route(*pair) for pair in pairs_of(again)
    ]


@pytest.mark.parametrize("routing", ["static", "ecmp"])
def test_a_full_cluster_spreads_messages_over_all_uplinks(routing):
    topology = Topology.cluster(num_ranks=512, **{**H100, "nodes_per_leaf": 16}, rails=8, routing=routing)
    ranks = np.arange(512)
    sources, destinations = (side.ravel() for side in np.meshgrid(ranks, ranks))
    apart = sources != destinations

    routes = topology.routes(sources[apart], destinations[apart])

    crossings = np.bincount(routes[routes >= 0], minlength=topology.num_links)[2 * 1024 :]
    assert len(crossings) == 2 * 32 * 16
    assert crossings.min() > 0.7 * crossings.mean()
    assert crossings.max() < 1.3 * crossings.mean()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nics_per_node": 3}, "nics_per_node: 3 does not divide ranks_per_node, 8"),
        ({"rails": 3}, "rails: 3 does not divide nics_per_node, 8"),
        ({"nodes_per_leaf": 0}, "nodes_per_leaf: expected a whole number of at least 1, got 0"),
        ({"nodes_per_pod": 6}, "nodes_per_pod: 6 is no multiple of nodes_per_leaf, 4"),
        ({"oversubscription": 0}, "oversubscription: expected a number such as 4"),
        ({"core_oversubscription": 2}, "core_oversubscription: without nodes_per_pod there are no cores"),
        ({"uplinks_per_spine": 2}, "uplinks_per_spine: without nodes_per_pod there are no cores"),
        ({"nodes_per_pod": 4, "core_oversubscription": -1}, "core_oversubscription: expected a number"),
        (
            {"fabric": "token_ring"},
            "fabric: expected one of infiniband, spectrum_x, ethernet, got 'token_ring'",
        ),
        ({"routing": "best"}, "routing: expected 'static', 'ecmp' or 'spray', got 'best'"),
        ({"intra_link": "usb"}, "intra_link: expected one of nvlink, pcie, got 'usb'"),
        ({"intra_link": "pcie", "pxn": True}, "pxn: goes over NVLink"),
        ({"nic_bandwidth": 2**62}, "nic_bandwidth: 4 links of .* carry together more than 2"),
    ],
)
def test_clusters_that_cannot_be_are_refused(change, said):
    with pytest.raises(TopologyError, match=f"^{said}"):
        Topology.cluster(**{"num_ranks": 16, **H100, **change})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rails = 3", "mine.toml: line 9: rails: 3 does not divide nics_per_node, 8"),
        ("nics_per_node = 5", "mine.toml: line 9: nics_per_node: 5 does not divide ranks_per_node, 8"),
        ("nodes_per_pod = 40", "mine.toml: line 9: nodes_per_pod: 40 is no multiple of nodes_per_leaf, 32"),
        ("core_oversubscription = 2.0", "mine.toml: line 9: core_oversubscription: without nodes_per_pod"),
        (
            'fabric = "myrinet"',
            "line 9: fabric: input should be 'infiniband', 'spectrum_x' or 'ethernet', got 'myrinet'",
        ),
        ('routing = "best"', "line 9: routing: .*'static', 'ecmp' or 'spray', got 'best'"),
        ("rail = 8", r"line 9: rail: unknown field \(did you mean 'rails'\?\)"),
        ("rails = 0", "line 9: rails: .*got 0"),
        (
            'num_ranks = 8\nuplinks_per_leaf = 1000000000\nrouting = "ecmp"',
            "directed links; expected at most 8388608",
        ),
        ('intra_link = "pcie"\npxn = true', "line 10: pxn: goes over NVLink"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line_with_its_number(line, said):
    with pytest.raises(NetworkFileError, match=said) as refused:
        parse_network(
            FILE.replace("oversubscription = 2\n", f"oversubscription = 2\n{line}\n"), "mine", "mine.toml"
        )

    assert "\n" not in str(refused.value)


@settings(max_examples=6, deadline=None)
@given(st.sampled_from(["all_gather", "all_to_all"]), st.integers(2, 5))
def test_the_library_takes_longer_by_what_an_oversubscribed_tree_adds(collective: str, nodes: int) -> None:
    def on_tree(oversubscription: int) -> Topology:
        text = FILE.replace("nodes_per_leaf = 32", "nodes_per_leaf = 1").replace(
            "intra", "rails = 1\nintra", 1
        )
        text = text.replace("subscription = 2", f"subscription = {oversubscription}") + HARDWARE
        return parse_network(text, "mine", "mine.toml").topology(8 * nodes)

    def seconds(topology: Topology) -> float:
        return simulate(
            "nccl", nbytes=2**28, topology=topology, collective=collective, model="library"
        ).seconds

    full, half, eighth = (on_tree(ratio) for ratio in (1, 2, 8))
    free = full.without_tree

    assert free is not None
    assert seconds(free) == seconds(full) <= seconds(half) < seconds(eighth)
