"""Survey of a network: its links, how far ranks are apart, and where it is narrow.

Distances are those of the routes that messages take, over samples where ranks are many.  The bisection
bandwidth is the largest flow from one half of the ranks to the other, over the links that some route has:
for the halves by rank number and for those that the network itself names (a torus, along each dimension),
the smallest of these.  No other halves are looked for, so a graph that is narrow elsewhere may have less.

Source: Dinic, "Algorithm for solution of a problem of maximum flow in networks with power estimation", Soviet
Mathematics Doklady 11, 1970.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sim.topology import Topology
from sim.topology.kinds.cluster import ClusterRouting
from sim.topology.kinds.graph import GraphRouting
from sim.topology.routing import DetourRouting
from sim.topology.sharing_table import Sharing
from sim.units import Int64Array

MAX_PAIRS = 1 << 18
"""Routes of more pairs of ranks than this are sampled."""
SAMPLED_DESTINATIONS = 63
"""Then as many ranks are destinations besides rank 0: paths on a graph are searched for each destination."""
MAX_EDGES = 1 << 25
"""On a graph so few pairs are taken that no more edges are looked at for one step of all."""
MAX_FLOW_LINKS = 300_000
"""Between halves that more links than this join, parallel ones counted once, no flow is computed."""

Residual = defaultdict[int, dict[int, int]]
"""From each vertex to each neighbour, what more can flow."""


@dataclass(frozen=True)
class LinkClass:
    """Links that are alike.

    Attributes:
        ends: what they join, such as ``rank to leaf``.
        count: number of directed links.
        bandwidth: of each, bytes per second.
        latency_ps: of each.
        sharing: which parts of the bandwidth one flow, two, … get together, one way and both ways; None:
            all of it.
    """

    ends: str
    count: int
    bandwidth: int
    latency_ps: int
    sharing: Sharing | None = None


@dataclass(frozen=True)
class Diameter:
    """The farthest that two ranks are apart.

    Attributes:
        hops: most links on a route.
        latency_ps: largest sum of latencies on a route.
        method: over which pairs of ranks.
    """

    hops: int
    latency_ps: int
    method: str


@dataclass(frozen=True)
class Bisection:
    """What can flow from one half of the ranks to the other.

    Attributes:
        bandwidth: bytes per second, one way; None where it was not computed.
        method: how it was got.
    """

    bandwidth: int | None
    method: str


@dataclass(frozen=True)
class Oversubscription:
    """The worst ratio of what the ranks of a group can send to what can leave the group.

    Attributes:
        ratio: 1 or less: the group's ranks can all send out at their full rate.
        group: such as ``node``.
    """

    ratio: float
    group: str


@dataclass(frozen=True)
class Fabric:
    """The switches of a cluster of GPU nodes, as people order them.

    Attributes:
        rails: leaves to which the cards of a node go.
        nodes_per_leaf: nodes that have cards on a leaf.
        cards_per_leaf: such cards.
        leaves: number of leaves.
        pods: number of pods, each with spines of its own.
        oversubscription: what the cards on a leaf send over what its uplinks carry.
        core_oversubscription: what the leaves of a pod send up over what its links to cores carry; None: one
            pod, which has no cores.
        routing: how messages are spread over equal paths.
    """

    rails: int
    nodes_per_leaf: int
    cards_per_leaf: int
    leaves: int
    pods: int
    oversubscription: float
    core_oversubscription: float | None
    routing: str


def fabric(topology: Topology) -> Fabric | None:
    """Return the switches of *topology*, if it is a cluster."""
    routing = topology.routing
    if not isinstance(routing, ClusterRouting):
        return None
    tree, first = routing.tree, routing.first_of_tree
    up, over = tree.num_uplinks
    per_leaf = int(topology.link_bandwidth[first : first + tree.num_spines].sum())
    per_pod = int(topology.link_bandwidth[first + up : first + up + over].sum()) // tree.num_pods
    cards = tree.ports_per_leaf * int(topology.link_bandwidth[2 * topology.num_ranks])
    return Fabric(
        routing.rails,
        routing.nodes_per_unit,
        tree.ports_per_leaf,
        tree.num_leaves,
        tree.num_pods,
        cards / per_leaf,
        per_leaf * tree.leaves_per_pod / per_pod if over else None,
        "spray" if tree.joint else "static" if tree.ecmp_seed is None else "ecmp",
    )


def kind_of(name: str) -> str:
    """Return *name* of a vertex without its numbers: ``node 3 NIC 0 out`` is a ``node NIC``."""
    words = re.sub(r"[.,:/_-]*\d+[.,:/_-]*", " ", re.sub(r" (in|out)$", "", name)).split()
    return " ".join(words) or "vertex"


def link_classes(topology: Topology) -> list[LinkClass]:
    """Return the classes of links: alike in bandwidth, latency, sharing and the kinds of their ends."""
    wiring = topology.routing.wiring()
    kinds = [kind_of(name) for name in wiring.names]
    known = sorted(set(kinds))
    number = {kind: place for place, kind in enumerate(known)}
    of = np.array([number[kind] for kind in kinds], dtype=np.int64)
    sharing = topology.sharing
    table = np.zeros(topology.num_links, dtype=np.int64) if sharing is None else sharing.table
    alike = np.stack(
        [of[wiring.tail], of[wiring.head], topology.link_bandwidth, topology.link_latency, table], axis=1
    )
    _, first, counts = np.unique(alike, axis=0, return_index=True, return_counts=True)
    return [
        LinkClass(
            f"{known[tail]} to {known[head]}",
            int(counts[place]),
            bandwidth,
            latency,
            None if sharing is None or sharing.tables[number].is_whole else sharing.tables[number],
        )
        for place in np.argsort(first)
        for tail, head, bandwidth, latency, number in [alike[first[place]].tolist()]
    ]


@dataclass(frozen=True)
class Pairs:
    """Routes of pairs of ranks.

    Attributes:
        routes: as of `Topology.routes`.
        complete: whether these are all pairs.
        method: over which pairs of ranks.
    """

    routes: Int64Array
    complete: bool
    method: str


def pairs_of(topology: Topology) -> Pairs:
    """Return the routes of all pairs of ranks, or of large networks those of many of them."""
    ranks = topology.num_ranks
    complete = ranks * ranks <= MAX_PAIRS
    if complete:
        sources, destinations = np.divmod(np.arange(ranks * ranks), ranks)
        method = "over all pairs of ranks"
    else:
        random = np.random.default_rng(0)
        many = min(MAX_PAIRS, MAX_EDGES // _widest(topology))
        near = np.arange(ranks) if ranks <= many else random.integers(ranks, size=many)
        others = random.integers(1, ranks, SAMPLED_DESTINATIONS)
        sources = np.concatenate([near, random.integers(ranks, size=many)])
        destinations = np.concatenate([np.zeros_like(near), np.resize(others, many)])
        method = f"of {len(sources)} pairs: all ranks to rank 0, and random ones to {len(others)} others"
        if len(near) < ranks:
            method = f"of {len(sources)} random pairs to rank 0 and {len(others)} others"
    different = sources != destinations
    return Pairs(topology.routes(sources[different], destinations[different]), complete, method)


def _widest(topology: Topology) -> int:
    """Return through how many edges a route is searched at the widest vertex, 1 where none is searched."""
    if not isinstance(topology.routing, GraphRouting | DetourRouting):
        return 1
    return max(1, int(np.bincount(topology.routing.wiring().tail).max(initial=0)))


def diameter(topology: Topology, pairs: Pairs) -> Diameter:
    """Return how far the ranks of *pairs* are apart."""
    crossed = pairs.routes >= 0
    latencies = (
        np.where(crossed, topology.link_latency[pairs.routes], 0) if topology.num_links else pairs.routes
    )
    return Diameter(
        int(crossed.sum(axis=1).max(initial=0)), int(latencies.sum(axis=1).max(initial=0)), pairs.method
    )


def bisection(topology: Topology, pairs: Pairs) -> Bisection:
    """Return what can flow between halves of the ranks, over the links that some route has."""
    ranks = np.arange(topology.num_ranks)
    if len(ranks) == 1:
        return Bisection(None, "one rank has no halves")
    halves = {"the halves by rank number": (ranks >= (len(ranks) + 1) // 2).astype(np.int64)}
    named = [cut.group_of for cut in topology.routing.cuts() if cut.name == "half"]
    halves |= {f"the network's own halves {number}": group for number, group in enumerate(named)}
    usable = np.ones(topology.num_links, dtype=bool)
    if pairs.complete:
        usable = np.isin(np.arange(topology.num_links), pairs.routes)
    flows = [_flow(topology, usable, group) for group in halves.values()]
    known = [flow for flow in flows if flow is not None]
    if len(known) < len(flows):
        return Bisection(None, f"not computed: more than {MAX_FLOW_LINKS} links")
    among = "" if len(flows) == 1 else f", the smallest of {len(flows)} divisions"
    return Bisection(min(known), f"maximum flow from half of the ranks to the other{among}")


def _flow(topology: Topology, usable: npt.NDArray[np.bool_], group: Int64Array) -> int | None:
    """Return the largest flow from the ranks of group 0 to those of group 1; None: too many links.

    All ranks of a group are one vertex, which changes no flow between the groups.
    """
    wiring = topology.routing.wiring()
    switches = len(wiring.names) - topology.num_ranks
    vertex = np.concatenate([group, 2 + np.arange(switches)])
    unlimited = int(topology.link_bandwidth.sum())
    ends = np.concatenate([np.stack([wiring.tail, wiring.head], axis=1)[usable], wiring.joins])
    capacity = np.concatenate([topology.link_bandwidth[usable], np.full(len(wiring.joins), unlimited)])
    pairs, place = np.unique(vertex[ends], axis=0, return_inverse=True)
    if len(pairs) > MAX_FLOW_LINKS:
        return None
    total = np.zeros(len(pairs), dtype=object)
    np.add.at(total, place, capacity.astype(object))
    edges = ((tail, head, most) for (tail, head), most in zip(pairs.tolist(), total, strict=True))
    return maximum_flow((edge for edge in edges if edge[0] != edge[1]), 0, 1)


def oversubscription(topology: Topology) -> Oversubscription | None:
    """Return the worst ratio over the groups of all cuts that hold several ranks; None: there are none."""
    wiring = topology.routing.wiring()
    own = np.zeros(len(wiring.names))
    np.add.at(own, wiring.tail, topology.link_bandwidth.astype(float))
    bandwidth = np.append(topology.link_bandwidth, 0).astype(float)
    worst: list[Oversubscription] = []
    for cut in topology.routing.cuts():
        inside = cut.group_of >= 0
        groups = len(cut.links_out)
        sizes = np.bincount(cut.group_of[inside], minlength=groups)
        entering = np.bincount(cut.group_of[inside], own[: topology.num_ranks][inside], groups)
        leaving = bandwidth[cut.links_out].sum(axis=1)
        several = (sizes > 1) & (sizes < topology.num_ranks) & (leaving > 0)
        if several.any():
            worst.append(Oversubscription(float((entering[several] / leaving[several]).max()), cut.name))
    return max(worst, key=lambda found: found.ratio, default=None)


def maximum_flow(edges: Iterable[tuple[int, int, int]], source: int, sink: int) -> int:
    """Return how much can flow from *source* to *sink* over *edges*: tail, head, capacity; one for each pair.

    Flows along shortest paths are filled up, until there are no more of that length; then along longer ones.
    """
    residual: Residual = defaultdict(dict)
    for tail, head, capacity in edges:
        residual[tail][head] = residual[tail].get(head, 0) + capacity
        residual[head].setdefault(tail, 0)
    total = 0
    while sink in (level := _levels(residual, source, sink)):
        nearer = {
            vertex: [head for head in residual[vertex] if level.get(head) == distance + 1]
            for vertex, distance in level.items()
        }
        path = [source]
        while path:
            vertex = path[-1]
            if vertex == sink:
                more = min(residual[tail][head] for tail, head in pairwise(path))
                for tail, head in pairwise(path):
                    residual[tail][head] -= more
                    residual[head][tail] += more
                total += more
                full = next(
                    place for place, ends in enumerate(pairwise(path)) if not residual[ends[0]][ends[1]]
                )
                del path[full + 1 :]
                continue
            heads = nearer[vertex]
            while heads and not residual[vertex][heads[-1]]:
                heads.pop()
            if heads:
                path.append(heads[-1])
                continue
            path.pop()  # no way on from here
            if path:
                nearer[path[-1]].pop()
    return total


def _levels(residual: Residual, source: int, sink: int) -> dict[int, int]:
    """Return how many edges vertices are from *source*, as far as *sink*."""
    level, last = {source: 0}, [source]
    while last and sink not in level:
        found = []
        for vertex in last:
            for head, more in residual[vertex].items():
                if more and head not in level:
                    level[head] = level[vertex] + 1
                    found.append(head)
        last = found
    return level
