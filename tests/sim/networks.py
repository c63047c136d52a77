"""Random networks of every kind, small enough to check message by message."""

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise, permutations
from math import prod
from typing import Any

from hypothesis import strategies as st

from sim import Topology, TopologyError
from sim.topology.link_sharing import LinkSharing
from sim.topology.sharing_table import WHOLE, Sharing

LATENCIES = st.sampled_from(["0s", "1ps", "500ns", "2us"])
ROUTINGS = st.sampled_from(["static", "ecmp", "spray"])
KINDS = ("switch", "ring", "torus", "nodes", "leaf_spine", "fat_tree", "cluster", "host", "graph")


def pairs_of(topology: Topology) -> list[tuple[int, int]]:
    """Return all pairs of two ranks."""
    return [*permutations(range(topology.num_ranks), 2)]


def names(topology: Topology, source: int, destination: int) -> str:
    """Return the names of the links of a route."""
    return ", ".join(topology.link_name(link) for link in topology.route(source, destination))


@st.composite
def networks(
    draw: st.DrawFn,
    bandwidth: st.SearchStrategy[int] | None = None,
    max_ranks: int = 12,
    kinds: tuple[str, ...] = KINDS,
) -> Topology:
    """Draw a network of at most *max_ranks* ranks whose links have *bandwidth* (bytes/s)."""
    kind = draw(st.sampled_from(kinds))
    return getattr(Topology, kind)(**draw(arguments(kind, bandwidth, max_ranks)))


def arguments(
    kind: str, bandwidth: st.SearchStrategy[int] | None = None, max_ranks: int = 12
) -> st.SearchStrategy[dict[str, Any]]:
    """Return the arguments of networks of *kind*."""
    drawn = {"nodes": _nodes, "cluster": clusters, "graph": _graph}.get(kind)
    rates = st.integers(1, 10**12) if bandwidth is None else bandwidth
    return drawn(rates, max_ranks) if drawn else _plain(kind, rates, max_ranks)


@st.composite
def _plain(draw: st.DrawFn, kind: str, bandwidth: st.SearchStrategy[int], max_ranks: int) -> dict[str, Any]:
    shape = {"num_ranks": draw(st.integers(1, max_ranks))}
    if kind == "torus":
        shape = {"shape": draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))}
        while prod(shape["shape"]) > max_ranks:
            shape["shape"].pop()
        shape["shape"] = shape["shape"] or [max_ranks]
    elif kind == "leaf_spine":
        shape |= {"hosts_per_leaf": draw(st.integers(1, 6)), "num_spines": draw(st.integers(1, 3))}
        shape |= {"uplink_bandwidth": draw(bandwidth), "uplink_latency": draw(LATENCIES)}
    elif kind == "fat_tree":
        k = draw(st.sampled_from([2, 4, 6]))
        shape = {"k": k, "num_ranks": min(k**3 // 4, max_ranks)}
    elif kind == "host":
        shape["memory_bandwidth"] = draw(bandwidth)
    if kind in ("leaf_spine", "fat_tree"):
        shape |= {"routing": draw(ROUTINGS), "seed": draw(st.integers(0, 9))}
    return {"bandwidth": draw(bandwidth), "latency": draw(LATENCIES), **shape}


@st.composite
def _nodes(draw: st.DrawFn, bandwidth: st.SearchStrategy[int], max_ranks: int) -> dict[str, Any]:
    nics, per_nic = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    num_nodes = draw(st.integers(1, max(1, max_ranks // (nics * per_nic))))
    return {
        "num_nodes": num_nodes,
        "num_ranks": draw(st.integers(1, min(max_ranks, num_nodes * nics * per_nic))),
        "ranks_per_node": nics * per_nic,
        "nics_per_node": nics,
        **{f"{link}_bandwidth": draw(bandwidth) for link in ("intra", "nic")},
        **{f"{link}_latency": draw(LATENCIES) for link in ("intra", "nic")},
    }


@st.composite
def clusters(
    draw: st.DrawFn, bandwidth: st.SearchStrategy[int] | None = None, max_ranks: int = 12
) -> dict[str, Any]:
    """Draw the arguments of a cluster of at most *max_ranks* ranks."""
    bandwidth = st.integers(1, 10**12) if bandwidth is None else bandwidth
    rails, per_rail, per_nic = draw(st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 2)))
    shape = {
        "num_ranks": draw(st.integers(1, max_ranks)),
        "ranks_per_node": rails * per_rail * per_nic,
        "nics_per_node": rails * per_rail,
        "rails": rails,
        "nodes_per_leaf": draw(st.integers(1, 3)),
        "oversubscription": draw(st.sampled_from([0.5, 1, 1.5, 3])),
        "uplinks_per_leaf": draw(st.none() | st.integers(1, 3)),
        "routing": draw(ROUTINGS),
        "seed": draw(st.integers(0, 9)),
        **draw(st.sampled_from([{"intra_link": "pcie"}, {"pxn": True}, {"pxn": False}])),
        "intra_bandwidth": draw(bandwidth),
        "nic_bandwidth": draw(bandwidth.filter(lambda rate: rate > 3)),
        **{f"{link}_latency": draw(LATENCIES) for link in ("intra", "nic", "uplink")},
    }
    if draw(st.booleans()):
        shape["nodes_per_pod"] = shape["nodes_per_leaf"] * draw(st.integers(1, 2))
        shape["uplinks_per_spine"] = draw(st.none() | st.integers(1, 2))
        shape["core_oversubscription"] = draw(st.sampled_from([1, 2]))
    return shape


@st.composite
def _graph(draw: st.DrawFn, bandwidth: st.SearchStrategy[int], max_ranks: int) -> dict[str, Any]:
    """Draw ranks and switches around a ring of one-way or two-way cables, and some links across."""
    ranks = [f"r{n}" for n in range(draw(st.integers(1, max_ranks)))]
    switches = [f"s{n}" for n in range(draw(st.integers(0, 4)))]
    around = draw(st.permutations([*ranks, *switches]))
    ends = [*pairwise(around), (around[-1], around[0])] if len(around) > 1 else []
    if draw(st.booleans()):
        ends += [(head, tail) for tail, head in ends]
    if ends:
        number = st.integers(0, len(around) - 1)
        across = draw(st.lists(st.tuples(number, number), max_size=12))
        ends += [(around[a], around[b]) for a, b in across if a != b]
    delay = st.sampled_from([0, 1, 500_000, 2_000_000])
    return {
        "ranks": ranks, "switches": switches,
        "links": [(tail, head, draw(bandwidth), draw(delay)) for tail, head in ends],
        "routing": draw(st.sampled_from(["shortest", "ecmp"])), "seed": draw(st.integers(0, 9)),
    }  # fmt: skip


@st.composite
def sharing_networks(
    draw: st.DrawFn, bandwidth: st.SearchStrategy[int] | None = None, max_ranks: int = 12
) -> Topology:
    """Draw a network as `networks` does, half of them with sharing tables: one or two for all links, or one
    for all that leave a switch."""
    topology = draw(networks(bandwidth, max_ranks))
    if not topology.num_links or draw(st.booleans()):
        return topology
    tables = draw(st.lists(sharing_tables(), min_size=1, max_size=2))
    ways = draw(st.sampled_from(["kinds", "ports", "links"]))
    if ways == "kinds":  # one kind of links after the other, as regular networks number them
        counts = [topology.num_links] if len(tables) == 1 else [1, topology.num_links - 1]
        classes = list(zip(counts, tables, strict=True))
    elif ways == "ports":
        leaves_a_switch = topology.routing.wiring().tail >= topology.num_ranks
        classes = [(1, tables[0] if is_port else WHOLE) for is_port in leaves_a_switch]
    else:
        classes = [(1, draw(st.sampled_from(tables))) for _ in range(topology.num_links)]
    return replace(topology, sharing=LinkSharing.of(classes, topology.routing))


@st.composite
def sharing_tables(draw: st.DrawFn) -> Sharing:
    """Draw a table of up to three parts each way."""
    parts = st.lists(st.sampled_from([1.0, 0.95, 0.9, 0.625, 0.5]), min_size=1, max_size=3)
    return Sharing(tuple(draw(parts)), tuple(draw(parts)))


@st.composite
def detours(draw: st.DrawFn, max_ranks: int = 12) -> Topology:
    """Draw a network without some of its links, as far as it can spare them."""
    topology = draw(networks(max_ranks=max_ranks))
    for link in draw(st.sets(st.integers(0, max(topology.num_links - 1, 0)), max_size=3)):
        with suppress(TopologyError):
            topology = topology.without_links([link])
    return topology
