"""Any graph, without some links, and with links of each rank's own."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from sim import Topology, TopologyError
from sim.topology.routing import UnsharedRouting
from tests.sim.networks import names, networks, pairs_of

GBPS = 125_000_000


def both(tail: str, head: str, bandwidth: int = GBPS, latency: int = 1000) -> list[tuple[str, str, int, int]]:
    return [(tail, head, bandwidth, latency), (head, tail, bandwidth, latency)]


def diamond(**how) -> Topology:
    """Return ranks a, b on switch s and c, d on t; between them a slow link and two quick ways of two."""
    cables = [("a", "s"), ("b", "s"), ("c", "t"), ("d", "t"), ("s", "u"), ("u", "t"), ("s", "v"), ("v", "t")]
    return Topology.graph(
        ranks=["a", "b", "c", "d"],
        switches=["s", "t", "u", "v"],
        links=[link for cable in cables for link in both(*cable)] + both("s", "t", latency=10**6),
        **how,
    )


def of_two(links) -> Topology:
    """Return ranks a and b with switches between, by latency."""
    return Topology.graph(ranks=["a", "b"], switches=["s", "t"], links=links, metric="latency")


A_PICOSECOND = [("a", "s", 1, 1), ("s", "t", 1, 1), ("t", "b", 1, 0), ("a", "b", 1, 3), ("b", "a", 1, 0)]
EQUAL = [("a", "s", 1, 0), ("s", "b", 1, 5), ("a", "b", 1, 5), ("b", "a", 1, 0)]


@pytest.mark.parametrize(
    ("topology", "last", "route"),
    [
        (diamond(), 2, "a to s, s to t, t to c"),
        (diamond(metric="latency"), 2, "a to s, s to u, u to t, t to c"),
        (of_two(A_PICOSECOND), 1, "a to s, s to t, t to b"),
        (of_two(EQUAL), 1, "a to b"),
    ],
    ids=["fewest links", "least latency", "a picosecond before links", "fewest of equal latency"],
)
def test_a_shortest_path_has_the_fewest_links_or_the_least_latency_and_then_the_fewest(topology, last, route):
    assert names(topology, 0, last) == route


def test_a_static_route_overrides_the_shortest_path_of_its_pair_alone():
    topology = diamond(routes={("a", "c"): ["s", "v", "t"]})

    assert names(topology, 0, 2) == "a to s, s to v, v to t, t to c"
    assert names(topology, 2, 0) == "c to t, t to s, s to a"
    table = topology.routes([0, 1, 2], [2, 2, 0])
    assert [tuple(row[row >= 0]) for row in table] == [topology.route(*p) for p in [(0, 2), (1, 2), (2, 0)]]


LINKS = {"bandwidth": "100Gbps", "latency": "2us"}


@given(networks(max_ranks=16), st.data())
def test_routes_avoid_the_links_and_those_that_did_before_stay_as_they_were(topology, data):
    links = data.draw(st.sets(st.integers(0, max(0, topology.num_links - 1)), max_size=2))
    try:
        less = topology.without_links(links)
    except TopologyError:
        reject()

    for pair in pairs_of(topology):
        before, after = topology.route(*pair), less.route(*pair)
        assert links.isdisjoint(after)
        assert before == after or not links.isdisjoint(before)
    assert np.array_equal(less.link_bandwidth, topology.link_bandwidth)


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
    spines = [tree.link_number(f"leaf 0 to spine {n}") for n in range(3)]

    one_left = tree.without_links(spines[:1]).without_links(spines[1:2])

    assert one_left.route(0, 7)[1] == spines[2]
    assert one_left.digest() == tree.without_links(spines[:2]).digest()


SWITCH = Topology.switch(num_ranks=20, **LINKS)
TREE = Topology.leaf_spine(num_ranks=8, hosts_per_leaf=4, num_spines=2, uplink_bandwidth="1Gbps", **LINKS)


@pytest.mark.parametrize(
    ("topology", "links", "said"),
    [
        (SWITCH, [20], r"^switch without rank 0 down: rank 0 cut off from the other ranks$"),
        (SWITCH, range(9), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and more cut off"),
        (SWITCH, [40], "link 40: switch has links 0 to 39"),
        (TREE, map(TREE.link_number, ["leaf 0 to spine 0", "leaf 0 to spine 1"]),
         "leaf 0 to spine 1: ranks 4, 5, 6, 7 cut off from the other ranks"),
    ],
)  # fmt: skip
def test_a_rank_that_is_cut_off_is_named_and_so_is_the_link(topology, links, said):
    with pytest.raises(TopologyError, match=said):
        topology.without_links(links)


@given(networks(max_ranks=8))
def test_every_rank_takes_the_usual_way_over_links_of_its_own(topology):
    ranks = topology.num_ranks
    alone = replace(
        topology,
        link_bandwidth=np.tile(topology.link_bandwidth, ranks),
        link_latency=np.tile(topology.link_latency, ranks),
        routing=UnsharedRouting(topology.routing, topology.num_links, ranks),
    )
    pairs = pairs_of(topology)
    owners = {}

    for source, destination in pairs:
        usual, own = topology.route(source, destination), alone.route(source, destination)
        assert [link % topology.num_links for link in own] == list(usual)
        assert [alone.link_name(link) for link in own] == [
            f"{topology.link_name(link)} for rank {source}" for link in usual
        ]
        assert {owners.setdefault(link, source) for link in own} <= {source}
    if pairs:
        sources, destinations = zip(*pairs, strict=True)
        table = alone.routes(sources, destinations)
        assert [tuple(row[row >= 0].tolist()) for row in table] == [alone.route(*pair) for pair in pairs]
