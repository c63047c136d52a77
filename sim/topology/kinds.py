"""Kinds of networks: from what people say of one to its links and its routing.

    switch      one non-blocking switch; a link up and a link down for each rank
    ring        links between neighbours
    torus       links between neighbours in each of several dimensions
    nodes       nodes of several ranks with a fast network inside and NICs between them
    leaf_spine  a tree of two levels
    fat_tree    the k-ary fat tree: three levels of equal switches
    cluster     GPU nodes whose cards are on a tree, by rails
    host        one host: ranks that share its memory
    graph       any ranks, switches and links

`Topology` offers each of them under its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from sim.errors import TopologyError
from sim.topology.cluster import cluster
from sim.topology.layout import Cache, NetworkLayout, ecmp_seed, layout
from sim.topology.routing import (
    GraphRouting,
    HostRouting,
    LinkSpec,
    NodesRouting,
    SwitchRouting,
    TorusRouting,
)
from sim.topology.sharing_table import SharingArgument
from sim.topology.trees import fat_tree, leaf_spine
from sim.units import MOST_SPEEDUP, Quantity, parse_bandwidth, parse_count, parse_size, parse_time


def switch(
    *,
    num_ranks: int,
    bandwidth: Quantity,
    latency: Quantity,
    sharing: SharingArgument = None,
    name: str = "switch",
) -> NetworkLayout:
    """Return ranks on one non-blocking switch; a path has two links, up and down.

    Args:
        num_ranks: number of ranks, at least 1.
        bandwidth: of each link and direction, ``"100Gbps"`` or a number of bytes/s.
        latency: of each link, ``"2us"`` or a number of seconds.
        sharing: what flows get of each link, such as ``{"one_way": [1.0, 0.98], "both_ways": [0.95]}``;
            see `sim.topology.sharing_table`.
        name: for people.

    Raises:
        TopologyError: an impossible number of ranks, or parts.
        UnitError: a bandwidth or latency that is out of range or cannot be read.
    """
    ranks = parse_count(num_ranks, "num_ranks")
    kinds = [(2 * ranks, parse_bandwidth(bandwidth), parse_time(latency, "latency"))]
    return layout(name, ranks, 1, kinds, SwitchRouting(ranks), sharing)


def ring(
    *,
    num_ranks: int,
    bandwidth: Quantity,
    latency: Quantity,
    sharing: SharingArgument = None,
    name: str = "ring",
) -> NetworkLayout:
    """Return ranks with a link to each neighbour; messages go the shorter way round.

    On a tie they go towards the next higher rank.  Arguments and errors as for `switch`.
    """
    ranks = parse_count(num_ranks, "num_ranks")
    routing = TorusRouting((ranks,))
    kinds = [(routing.num_links, parse_bandwidth(bandwidth), parse_time(latency, "latency"))]
    return layout(name, ranks, 1, kinds, routing, sharing)


def nodes(
    *,
    num_nodes: int,
    ranks_per_node: int,
    intra_bandwidth: Quantity,
    intra_latency: Quantity,
    nics_per_node: int,
    nic_bandwidth: Quantity,
    nic_latency: Quantity,
    num_ranks: int | None = None,
    intra_sharing: SharingArgument = None,
    nic_sharing: SharingArgument = None,
    name: str = "nodes",
) -> NetworkLayout:
    """Return nodes of several ranks, a switch inside each and NICs on a switch between them.

    A path has two links: inside a node the rank's up link and the peer's down link, between
    nodes the up link of one NIC and the down link of another.

    Args:
        num_nodes: number of nodes.
        ranks_per_node: ranks that a node has room for.
        intra_bandwidth: of each rank's links inside the node, ``"300GB/s"`` or bytes/s.
        intra_latency: of each link inside a node, ``"500ns"`` or seconds.
        nics_per_node: network cards of a node; must divide ``ranks_per_node``.  Consecutive
            ranks share a card.
        nic_bandwidth: of each card and direction.
        nic_latency: of each link between a card and the switch.
        num_ranks: number of ranks, which fill the nodes in order; by default all places.
        intra_sharing: what flows get of each link inside a node, as for `switch`.
        nic_sharing: of each link between a card and the switch.
        name: for people.

    Raises:
        TopologyError: counts that are not positive or do not fit together.
        UnitError: a bandwidth or latency that is out of range or cannot be read.
    """
    places = parse_count(num_nodes, "num_nodes") * parse_count(ranks_per_node, "ranks_per_node")
    ranks = places if num_ranks is None else parse_count(num_ranks, "num_ranks")
    if ranks > places:
        raise TopologyError(
            f"num_ranks: {ranks} ranks, but {num_nodes} nodes of {ranks_per_node} hold {places}"
        )
    if ranks_per_node % parse_count(nics_per_node, "nics_per_node"):
        raise TopologyError(
            f"nics_per_node: {nics_per_node} does not divide ranks_per_node, {ranks_per_node}; "
            "each NIC serves equally many ranks"
        )

    routing = NodesRouting(ranks, ranks_per_node, ranks_per_node // nics_per_node)
    intra = (
        parse_bandwidth(intra_bandwidth, "intra_bandwidth"),
        parse_time(intra_latency, "intra_latency"),
    )
    nic = parse_bandwidth(nic_bandwidth, "nic_bandwidth"), parse_time(nic_latency, "nic_latency")
    kinds = [(2 * ranks, *intra), (2 * routing.num_nics, *nic)]
    return layout(name, ranks, min(ranks, ranks_per_node), kinds, routing, intra_sharing, nic_sharing)


def host(
    *,
    num_ranks: int,
    bandwidth: Quantity,
    memory_bandwidth: Quantity,
    latency: Quantity,
    sharing: SharingArgument = None,
    cache: Quantity = 0,
    cache_speedup: float = 1.0,
    cache_copy_speedup: float = 1.0,
    name: str = "host",
) -> NetworkLayout:
    """Return ranks of one host that share its memory; a path has three links, the memory between two.

    A rank's processor writes what the rank sends and reads what it receives; both share it where *sharing*
    says so (``{"one_way": [1.0], "both_ways": [0.5]}``: half of it for each).

    Args:
        num_ranks: number of ranks, at least 1.
        bandwidth: bytes of messages that one rank's processor carries, ``"10GB/s"`` or bytes/s.
        memory_bandwidth: bytes of messages that all ranks carry together.
        latency: of writing, and of reading.
        sharing: what flows get of a rank's processor, as for `switch`.
        cache: bytes of buffers, of all ranks together, up to which messages move faster.
        cache_speedup: how many times as fast, at least 1.
        cache_copy_speedup: how many times as fast a rank copies within its own memory.
        name: for people.

    Raises:
        TopologyError: an impossible number of ranks, parts or speedup.
        UnitError: a bandwidth, latency or size that is out of range or cannot be read.
    """
    ranks = parse_count(num_ranks, "num_ranks")
    speedups = {"cache_speedup": cache_speedup, "cache_copy_speedup": cache_copy_speedup}
    for what, speedup in speedups.items():
        if not 1 <= speedup <= MOST_SPEEDUP:
            raise TopologyError(f"{what}: expected 1 to {MOST_SPEEDUP}, got {speedup!r}")
    rate, whole = parse_bandwidth(bandwidth), parse_bandwidth(memory_bandwidth, "memory_bandwidth")
    kinds = [(2 * ranks, rate, parse_time(latency, "latency")), (1, whole, 0)]
    described = layout(name, ranks, ranks, kinds, HostRouting(ranks), sharing, None)
    near = parse_size(cache, "cache")
    return described._replace(cache=Cache(near, *map(float, speedups.values())) if near else None)


def torus(
    *,
    shape: Sequence[int],
    bandwidth: Quantity,
    latency: Quantity,
    sharing: SharingArgument = None,
    name: str = "torus",
) -> NetworkLayout:
    """Return a grid of ranks that is closed to a ring in each dimension.

    Args:
        shape: sizes of the dimensions, any number of them; ranks are numbered row by row.
        bandwidth: of each link and direction.
        latency: of each link.
        sharing: what flows get of each link, as for `switch`.
        name: for people.

    Messages go along the first dimension, then the second, and so on; see `TorusRouting`.
    Errors as for `switch`.
    """
    if not isinstance(shape, list | tuple) or not shape:
        raise TopologyError(f"shape: expected the sizes of the dimensions, such as (4, 4, 4), got {shape!r}")
    routing = TorusRouting(tuple(parse_count(size, "shape") for size in shape))
    kinds = [(routing.num_links, parse_bandwidth(bandwidth), parse_time(latency, "latency"))]
    return layout(name, routing.num_ranks, 1, kinds, routing, sharing)


def graph(
    *,
    ranks: Sequence[str],
    switches: Sequence[str] = (),
    links: Sequence[LinkSpec],
    routes: Mapping[tuple[str, str], Sequence[str]] | None = None,
    ranks_per_node: int = 1,
    routing: Literal["shortest", "ecmp"] = "shortest",
    metric: Literal["hops", "latency"] = "hops",
    seed: int = 0,
    name: str = "graph",
) -> NetworkLayout:
    """Return any network.

    Args:
        ranks: names of the ranks, rank 0 first.
        switches: names of what else links end at.
        links: directed links, numbered in this order; a cable that carries both ways is two.
        routes: for pairs of ranks (source, destination), the names on the way between them; other
            pairs take a shortest path.
        ranks_per_node: consecutive ranks that make a node.
        routing: of several shortest paths, ``shortest`` takes that whose links come first, ``ecmp``
            one by hash.
        metric: what a shortest path has least of: ``hops``, or ``latency`` and then hops.
        seed: of the hash.
        name: for people.

    Raises:
        TopologyError: names that are not there or come twice, a rank that cannot reach another, a
            route over links that do not exist, impossible numbers.
    """
    if metric not in ("hops", "latency"):
        raise TopologyError(f"metric: expected 'hops' or 'latency', got {metric!r}")
    seed_or_none = ecmp_seed(routing, ("shortest", "ecmp"), seed)
    specs = [LinkSpec(*link) for link in links]
    for spec in specs:
        what = f"link {spec.tail!r} to {spec.head!r}"
        parse_count(spec.bandwidth, f"{what}, bytes per second")
        parse_count(spec.latency, f"{what}, latency in picoseconds", least=0)
    num_ranks = parse_count(len(ranks), "number of ranks")
    graph = GraphRouting.of(ranks, switches, specs, routes or {}, metric == "latency", seed_or_none)
    kinds = [(0, 1, 0), *((1, spec.bandwidth, spec.latency) for spec in specs)]
    per_node = min(parse_count(ranks_per_node, "ranks_per_node"), num_ranks)
    sharings = [None, *(spec.sharing for spec in specs)]
    return layout(name, num_ranks, per_node, kinds, graph, *sharings)


KINDS: Mapping[str, Callable[..., NetworkLayout]] = {
    "switch": switch,
    "ring": ring,
    "torus": torus,
    "nodes": nodes,
    "leaf_spine": leaf_spine,
    "fat_tree": fat_tree,
    "cluster": cluster,
    "host": host,
    "graph": graph,
}
"""By the names that network files have for them."""
