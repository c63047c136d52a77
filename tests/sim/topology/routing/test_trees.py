"""Trees of switches: paths, thinned uplinks, and how traffic is spread over them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.topology import Topology
from sim.topology.kinds.switch_tree import TreeRouting
from sim.topology.placement import places

LINKS = {"bandwidth": "100Gbps", "latency": "2us"}


def leaf_spine(**how) -> Topology:
    shape = {"num_ranks": 16, "hosts_per_leaf": 4, "uplink_bandwidth": "200Gbps", **LINKS}
    return Topology.leaf_spine(**{**shape, **how})


def names(topology: Topology, source: int, destination: int) -> list[str]:
    return [topology.link_name(link) for link in topology.route(source, destination)]


def load(topology: Topology, sources, destinations) -> np.ndarray:
    """Return how many of the messages cross each link."""
    routes = topology.routes(sources, destinations)
    return np.bincount(routes[routes >= 0], minlength=topology.num_links)


def test_a_path_between_leaves_goes_over_the_spine_of_its_destination():
    topology = leaf_spine(num_spines=2)

    assert names(topology, 0, 3) == ["rank 0 up", "rank 3 down"]
    assert names(topology, 0, 7) == ["rank 0 up", "leaf 0 to spine 1", "spine 1 to leaf 1", "rank 7 down"]


def test_uplinks_have_a_bandwidth_and_a_latency_of_their_own():
    route = list(leaf_spine(uplink_latency="5us").route(0, 4))

    assert leaf_spine(uplink_latency="5us").link_latency[route].tolist() == [
        2_000_000,
        5_000_000,
        5_000_000,
        2_000_000,
    ]
    assert leaf_spine().link_latency[route].tolist() == [2_000_000] * 4
    assert leaf_spine().link_bandwidth[route].tolist() == [
        12_500_000_000,
        *[25_000_000_000] * 2,
        12_500_000_000,
    ]


def test_a_path_in_a_fat_tree_climbs_no_higher_than_it_must():
    topology = Topology.fat_tree(k=4, **LINKS)

    assert topology.num_ranks == 16
    assert names(topology, 0, 1) == ["rank 0 up", "rank 1 down"]
    assert names(topology, 0, 3) == [
        "rank 0 up", "edge 0 to aggregation 1", "aggregation 1 to edge 1", "rank 3 down",
    ]  # fmt: skip
    assert names(topology, 0, 15) == [
        "rank 0 up",
        "edge 0 to aggregation 1",
        "aggregation 1 to core 3",
        "core 3 to aggregation 7",
        "aggregation 7 to edge 7",
        "rank 15 down",
    ]


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


@given(st.integers(0, 2**64), st.integers(0, 2**64))
def test_a_hash_is_the_same_each_time_and_another_with_another_seed(seed, other):
    ranks = np.arange(256)
    pairs = np.repeat(ranks, 15), (np.repeat(ranks, 15) + np.tile(16 * np.arange(1, 16), 256)) % 256
    trees = [
        leaf_spine(num_ranks=256, hosts_per_leaf=16, num_spines=16, routing="ecmp", seed=s)
        for s in (seed, seed, other)
    ]

    first, again, different = (tree.routes(*pairs) for tree in trees)
    assert np.array_equal(first, again)
    assert np.array_equal(first, different) == (seed % 2**64 == other % 2**64)


@pytest.mark.parametrize(
    "topology",
    [
        leaf_spine(num_ranks=256, hosts_per_leaf=16, num_spines=16, routing="ecmp"),
        Topology.fat_tree(k=12, routing="ecmp", **LINKS),
    ],
    ids=lambda topology: topology.name,
)
def test_hashes_spread_messages_over_all_paths(topology):
    ranks = np.arange(topology.num_ranks)
    sources, destinations = (side.ravel() for side in np.meshgrid(ranks, ranks))
    apart = sources != destinations
    between = load(topology, sources[apart], destinations[apart])[2 * topology.num_ranks :]

    for level in np.split(between, 2 if topology.name == "leaf_spine" else 4):
        assert level.min() > 0.8 * level.mean()
        assert level.max() < 1.2 * level.mean()


def test_an_oversubscribed_tree_has_thinner_links_between_switches_and_as_many_ranks():
    full, thin = (Topology.fat_tree(k=4, oversubscription=o, **LINKS) for o in (1, 2.5))

    assert full.num_ranks == thin.num_ranks
    assert set(full.link_bandwidth.tolist()) == {12_500_000_000}
    assert thin.link_bandwidth[: 2 * 16].tolist() == [12_500_000_000] * 32
    assert set(thin.link_bandwidth[2 * 16 :].tolist()) == {5_000_000_000}


@pytest.mark.parametrize(
    ("topology", "first"),
    [
        (leaf_spine(num_ranks=8), (0, 4, 1, 5, 2, 6, 3, 7)),
        (Topology.fat_tree(k=4, num_ranks=8, **LINKS), (0, 2, 4, 6, 1, 3, 5, 7)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_round_robin_in_a_tree_goes_over_the_leaves(topology, first):
    assert places("round_robin", topology) == first


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: leaf_spine(hosts_per_leaf=0),
            "hosts_per_leaf: expected a whole number of at least 1, got 0",
        ),
        (lambda: leaf_spine(num_spines=-1), "num_spines"),
        (lambda: leaf_spine(routing="random"), "routing: expected 'static', 'ecmp' or 'spray', got 'random'"),
        (lambda: leaf_spine(routing="ecmp", seed=-1), "seed: expected a whole number of at least 0, got -1"),
        (lambda: leaf_spine(uplink_bandwidth="0Gbps"), "uplink_bandwidth"),
        (lambda: Topology.fat_tree(k=5, **LINKS), "k: expected an even number of ports, got 5"),
        (lambda: Topology.fat_tree(k=4, num_ranks=17, **LINKS), "num_ranks: 17 ranks, but .* holds 16"),
        (lambda: Topology.fat_tree(k=4, oversubscription=0, **LINKS), "oversubscription: expected a number"),
        (lambda: Topology.fat_tree(k=4, oversubscription="x", **LINKS), "oversubscription.* got 'x'"),
        (lambda: Topology.fat_tree(k=4, oversubscription=float("inf"), **LINKS), "oversubscription"),
        (lambda: Topology.fat_tree(k=4, oversubscription=1e99, **LINKS), "oversubscription"),
        (lambda: Topology.torus(shape=(), **LINKS), "shape: expected the sizes of the dimensions"),
        (
            lambda: Topology.torus(shape=(4, 0), **LINKS),
            "shape: expected a whole number of at least 1, got 0",
        ),
        (lambda: Topology.torus(shape=64, **LINKS), "shape: expected .* got 64"),
    ],
)
def test_networks_that_cannot_be_are_refused(make, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        make()


@pytest.mark.parametrize(
    "topology",
    [Topology.torus(shape=(16, 16, 16), **LINKS), Topology.fat_tree(k=26, num_ranks=4096, **LINKS)],
    ids=lambda topology: topology.name,
)
def test_routes_of_four_thousand_ranks_are_made_at_once(topology):
    sources = np.tile(np.arange(4096), 10)
    destinations = (sources + np.repeat(2184 - np.arange(10), 4096)) % 4096

    routes = topology.routes(sources, destinations)

    assert topology.num_ranks == 4096
    assert routes.shape == (40_960, 6 if isinstance(topology.routing, TreeRouting) else 24)


@given(st.integers(2, 12), st.integers(2, 12))
def test_half_a_torus_sends_to_the_other_over_two_rings_links_for_each_row(rows, columns):
    halves = [
        cut for cut in Topology.torus(shape=(rows, columns), **LINKS).routing.cuts() if cut.name == "half"
    ]

    widths = [cut.links_out.shape for cut in halves]
    expected = {(2, other * min(size - 1, 2)) for size, other in ((rows, columns), (columns, rows))}
    assert {*widths} == expected
    assert widths[0][1] <= widths[-1][1] or 2 in (rows, columns)
