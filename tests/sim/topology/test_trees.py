"""Trees of switches, and clusters on them: how traffic is spread, and what oversubscription leaves."""

import inspect
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import networkx
import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from collectives import simulate
from sim import Topology, load_network
from sim.hardware import Channels, Hardware
from tests.sim.fluid import fluid, max_min
from tests.sim.networks import clusters, names, networks, pairs_of

ROOT = Path(__file__).parents[3]
H100 = {"ranks_per_node": 8, "intra_bandwidth": "450GB/s", "nic_bandwidth": "400Gbps", "nodes_per_leaf": 4}
RATE = 50_000_000_000

LINKS = {"bandwidth": "100Gbps", "latency": "2us"}


def leaf_spine(**how) -> Topology:
    shape = {"num_ranks": 256, "hosts_per_leaf": 16, "num_spines": 16, "uplink_bandwidth": "200Gbps", **LINKS}
    return Topology.leaf_spine(**{**shape, **how})


def load(topology: Topology, sources, destinations) -> np.ndarray:
    """Return how many of the messages cross each link."""
    routes = topology.routes(sources, destinations)
    return np.bincount(routes[routes >= 0], minlength=topology.num_links)


@given(st.sampled_from([2, 4, 6, 8]), st.data())
def test_shifted_ranks_share_no_link_in_a_full_fat_tree(k, data):
    topology = Topology.fat_tree(k=k, **LINKS)
    ranks = np.arange(topology.num_ranks)
    shift = data.draw(st.integers(1, topology.num_ranks - 1))

    assert load(topology, ranks, (ranks + shift) % topology.num_ranks).max() == 1


@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_shifted_ranks_share_an_uplink_as_much_as_there_are_too_few(leaves, hosts, data):
    spines = data.draw(st.integers(1, 4))
    topology = leaf_spine(num_ranks=leaves * hosts, hosts_per_leaf=hosts, num_spines=spines)
    ranks = np.arange(topology.num_ranks)
    shift = data.draw(st.integers(0, leaves - 1)) * hosts
    moving = ranks[(ranks + shift) % len(ranks) != ranks]

    assert load(topology, moving, (moving + shift) % len(ranks)).max(initial=0) <= -(-hosts // spines)


@given(networks(), st.data())
def test_a_connection_keeps_its_way_and_channel_0_takes_that_of_its_ranks(topology, data):
    pairs = pairs_of(topology) or reject()
    connections = data.draw(st.lists(st.tuples(st.sampled_from(pairs), st.integers(0, 63)), min_size=1))
    ends, channels = np.array([pair for pair, _ in connections]), [channel for _, channel in connections]

    ways = [tuple(way[way >= 0].tolist()) for way in topology.routes(*ends.T, channels)]

    assert ways == [topology.route(*pair, channel) for pair, channel in connections]
    assert [topology.route(*pair, 0) for pair in pairs] == [topology.route(*pair) for pair in pairs]
    if not topology.routing.by_channel:
        assert ways == [topology.route(*pair) for pair, _ in connections]


@pytest.mark.parametrize("routing", ["static", "ecmp", "spray"])
@given(seed=st.integers(0, 2**64))
def test_only_a_hash_sends_the_channels_of_two_ranks_over_several_uplinks(routing, seed):
    shape = {"num_ranks": 32, "ranks_per_node": 1, "intra_bandwidth": RATE, "nic_bandwidth": RATE}
    cluster = Topology.cluster(**shape, nodes_per_leaf=16, routing=routing, seed=seed)

    for topology in (cluster, leaf_spine(num_ranks=32, routing=routing, seed=seed)):
        ways = topology.routes([0] * 64, [31] * 64, range(64))

        assert (len({*map(tuple, ways.tolist())}) > 1) == (routing == "ecmp") == topology.routing.by_channel
        assert len({len(way[way >= 0]) for way in ways}) == 1


@given(st.integers(0, 2**64), st.integers(0, 2**64))
def test_a_hash_is_the_same_each_time_and_another_with_another_seed(seed, other):
    ranks = np.arange(256)
    pairs = np.repeat(ranks, 15), (np.repeat(ranks, 15) + np.tile(16 * np.arange(1, 16), 256)) % 256
    trees = [leaf_spine(routing="ecmp", seed=s) for s in (seed, seed, other)]

    first, again, different = (tree.routes(*pairs) for tree in trees)
    assert np.array_equal(first, again)
    assert np.array_equal(first, different) == (seed % 2**64 == other % 2**64)


FULL = {**H100, "num_ranks": 512, "nodes_per_leaf": 16}
SPREAD = {
    "leaf_spine": (leaf_spine(routing="ecmp"), 2, 0.2),
    "fat_tree": (Topology.fat_tree(k=12, routing="ecmp", **LINKS), 4, 0.2),
    "cluster, ecmp": (Topology.cluster(**FULL, routing="ecmp"), 2, 0.3),
    "cluster, static": (Topology.cluster(**FULL, routing="static"), 2, 0.3),
}
"""Full trees, their levels of links, and how far from its mean a link of each may be."""


@pytest.mark.parametrize("tree", SPREAD)
def test_messages_are_spread_over_all_uplinks(tree):
    topology, num_levels, most = SPREAD[tree]
    ranks = np.arange(topology.num_ranks)
    sources, destinations = (side.ravel() for side in np.meshgrid(ranks, ranks))
    apart = sources != destinations
    num_hosts = 2 * topology.num_ranks * (2 if topology.name == "cluster" else 1)

    between = load(topology, sources[apart], destinations[apart])[num_hosts:]

    for level in np.split(between, num_levels):
        assert (1 - most) * level.mean() < level.min() <= level.max() < (1 + most) * level.mean()


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
        shape |= {"num_ranks": 12, "hosts_per_leaf": draw(st.integers(1, 6))}
        shape |= {"num_spines": draw(st.integers(1, 4)), "uplink_bandwidth": draw(rates)}
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


def test_the_example_has_three_levels_with_thin_links_to_the_cores():
    topology = load_network(ROOT / "examples" / "gpu_cluster.toml").topology(6144)

    assert "leaf 0 to pod 0 spines, pod 0 spines to cores" in names(topology, 0, 6143)
    _, leaf, pod, *_ = topology.link_bandwidth[list(topology.route(0, 6143))].tolist()
    assert pod == 192 * leaf // 7


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
        "routing": "spray", "oversubscription": data.draw(st.sampled_from([0.5, 1])), "uplink_latency": 0,
    }  # fmt: skip
    shape |= {"core_oversubscription": 1, "pxn": False, "intra_link": "nvlink"}
    shared = inspect.signature(Topology.nodes).parameters.keys() & shape.keys()
    nodes = Topology.nodes(**{name: shape[name] for name in shared})
    assume(nodes.num_ranks > 1)
    pair = st.sampled_from(pairs_of(nodes))
    messages = data.draw(st.lists(st.tuples(st.integers(0, 3), pair, st.integers(1, 500)), max_size=12))
    sent = [(start * 10**12, *ends, nbytes) for start, ends, nbytes in messages]

    assert fluid(Topology.cluster(**shape), sent) == fluid(nodes, sent)


@given(clusters())
def test_what_leaves_a_unit_or_a_pod_is_what_its_cards_send_over_the_oversubscription(shape):
    topology = Topology.cluster(**{**shape, "routing": "spray"})
    spread = Topology.cluster(**{**shape, "routing": "ecmp"})
    rails, cards = shape["rails"], shape["nics_per_node"]
    into_leaf = shape["nodes_per_leaf"] * cards // rails * shape["nic_bandwidth"]
    leaf = int(into_leaf / Fraction(shape["oversubscription"]))
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

    rates = max_min(whole, sprayed.link_bandwidth.tolist())
    assert rates == max_min(divided, spread.link_bandwidth.tolist())


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


@settings(max_examples=6, deadline=None)
@given(st.sampled_from(["all_gather", "all_to_all"]), st.integers(2, 5))
def test_the_library_takes_longer_by_what_an_oversubscribed_tree_adds(collective, num_nodes):
    hardware = Hardware("hopper", Channels.of(12, "30GB/s"), Channels.of(8, "45GB/s"))
    shape = {**H100, "num_ranks": 8 * num_nodes, "nodes_per_leaf": 1, "rails": 1}

    def seconds(topology):
        own = replace(topology, hardware=hardware)
        return simulate("nccl", nbytes=2**28, topology=own, collective=collective, model="library").seconds

    full, half, eighth = (Topology.cluster(**shape, oversubscription=ratio) for ratio in (1, 2, 8))

    assert seconds(full.without_tree) == seconds(full) <= seconds(half) < seconds(eighth)
