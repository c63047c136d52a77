"""Trees of switches: of two levels, and the k-ary fat tree."""

from __future__ import annotations

from fractions import Fraction

from sim.errors import TopologyError
from sim.topology.layout import NetworkLayout, Spreading, ecmp_seed, layout
from sim.topology.routing import SwitchTree, TreeRouting
from sim.topology.sharing_table import SharingArgument
from sim.units import Quantity, parse_bandwidth, parse_count, parse_time


def leaf_spine(
    *,
    num_ranks: int,
    hosts_per_leaf: int,
    bandwidth: Quantity,
    uplink_bandwidth: Quantity,
    latency: Quantity,
    num_spines: int = 1,
    uplink_latency: Quantity | None = None,
    routing: Spreading = "static",
    seed: int = 0,
    sharing: SharingArgument = None,
    uplink_sharing: SharingArgument = None,
    name: str = "leaf_spine",
) -> NetworkLayout:
    """Return a tree of two levels: every leaf switch is linked to every spine.

    A path has two links inside a leaf and four to another.  Each rank is a node of its own.

    Args:
        num_ranks: number of ranks, which fill the leaves in order.
        hosts_per_leaf: ranks that a leaf has room for.
        bandwidth: of each rank's link to its leaf, each way.
        uplink_bandwidth: of the link between a leaf and a spine, each way.
        latency: of each rank's link.
        num_spines: number of spines, so also of links up from a leaf.
        uplink_latency: of the links between leaves and spines; by default *latency*.
        routing: which spine a message takes: ``static`` by its destination, ``ecmp`` by hash, ``spray`` all
            evenly.
        seed: of the hash.
        sharing: what flows get of each rank's link, as for `switch`.
        uplink_sharing: of each link between a leaf and a spine.
        name: for people.

    Raises:
        TopologyError: counts that are not positive, an unknown routing.
        UnitError: a bandwidth or latency that is out of range or cannot be read.
    """
    ranks, spines = parse_count(num_ranks, "num_ranks"), parse_count(num_spines, "num_spines")
    leaves = -(-ranks // parse_count(hosts_per_leaf, "hosts_per_leaf"))
    tree = switch_tree(routing, seed, leaves, hosts_per_leaf, spines, leaves)

    up = parse_bandwidth(uplink_bandwidth, "uplink_bandwidth")
    delay = parse_time(latency if uplink_latency is None else uplink_latency, "uplink_latency")
    kinds = [
        (2 * ranks, parse_bandwidth(bandwidth), parse_time(latency, "latency")),
        (tree.num_links, joint(up, spines, "uplink_bandwidth") if tree.joint else up, delay),
    ]
    return layout(name, ranks, 1, kinds, TreeRouting(ranks, tree), sharing, uplink_sharing)


def fat_tree(
    *,
    k: int,
    bandwidth: Quantity,
    latency: Quantity,
    oversubscription: int | float | Fraction = 1,
    num_ranks: int | None = None,
    routing: Spreading = "static",
    seed: int = 0,
    sharing: SharingArgument = None,
    name: str = "fat_tree",
) -> NetworkLayout:
    """Return a k-ary fat tree: three levels of switches with k ports, k³/4 ranks.

    With h = k/2: k pods of h edge and h aggregation switches, h·h cores, h ranks an edge switch.  A path has
    two links under one edge switch, four inside a pod, six between pods.  Source: Al-Fares, Loukissas and
    Vahdat, "A scalable, commodity data center network architecture", SIGCOMM 2008.

    Args:
        k: ports of each switch, even.
        bandwidth: of each rank's link to its edge switch, each way.
        latency: of each link.
        oversubscription: what the ranks of an edge switch send at most, over what its links up
            carry.  Links between switches have *bandwidth* divided by it, so networks that differ
            in nothing else can be compared on the same ranks.
        num_ranks: number of ranks, which fill the edge switches in order; by default all places.
        routing: the way up: ``static`` by destination (d-mod-k), ``ecmp`` by hash, ``spray`` all evenly.
        seed: of the hash.
        sharing: what flows get of each link, as for `switch`.
        name: for people.

    Raises:
        TopologyError: an odd k, more ranks than places, an oversubscription that is not positive
            or leaves no bandwidth, an unknown routing.
        UnitError: a bandwidth or latency that is out of range or cannot be read.
    """
    if parse_count(k, "k") % 2:
        raise TopologyError(f"k: expected an even number of ports, got {k}")
    places = k**3 // 4
    ranks = places if num_ranks is None else parse_count(num_ranks, "num_ranks")

    if ranks > places:
        raise TopologyError(f"num_ranks: {ranks} ranks, but a fat tree with k = {k} holds {places}")
    half = k // 2
    levels = ("edge", "aggregation", "core")
    tree = switch_tree(routing, seed, k * half, half, half, half, half, levels)
    rate, delay = parse_bandwidth(bandwidth), parse_time(latency, "latency")
    thin = thinned(rate, oversubscription)
    up, over = (
        (joint(thin, half, "bandwidth"), joint(thin, half**2, "bandwidth")) if tree.joint else (thin, thin)
    )
    kinds = [(2 * ranks, rate, delay), *uplinks(tree, up, over, delay)]
    return layout(name, ranks, 1, kinds, TreeRouting(ranks, tree), *4 * (sharing,))


def switch_tree(
    routing: Spreading,
    seed: int,
    num_leaves: int,
    ports_per_leaf: int,
    num_spines: int,
    leaves_per_pod: int,
    cores_per_spine: int = 1,
    levels: tuple[str, str, str] = ("leaf", "spine", "core"),
) -> SwitchTree:
    """Return the tree of so many switches, as *routing* spreads messages over it.

    Raises:
        TopologyError: an unknown routing, or a seed that is not a whole number.
    """
    ecmp = ecmp_seed(routing, ("static", "ecmp", "spray"), seed)
    if routing == "spray":
        return SwitchTree(num_leaves, ports_per_leaf, 1, leaves_per_pod, 1, None, levels, joint=True)
    return SwitchTree(num_leaves, ports_per_leaf, num_spines, leaves_per_pod, cores_per_spine, ecmp, levels)


def uplinks(tree: SwitchTree, up: int, over: int, latency: int) -> list[tuple[int, int, int]]:
    """Return the links of *tree*, in order, as `layout` takes them.

    Args:
        tree: whose links.
        up: bandwidth of a link between a leaf and a spine.
        over: of one between a spine and a core.
        latency: of each.
    """
    leaves, spines = tree.num_uplinks
    return [(leaves, up, latency), (2 * spines, over, latency), (leaves, up, latency)]


def joint(bandwidth: int, links: int, what: str) -> int:
    """Return what *links* of *bandwidth* carry together.

    Raises:
        TopologyError: more than 63 bits hold; names *what*.
    """
    if bandwidth * links >= 2**63:
        raise TopologyError(
            f"{what}: {links} links of {bandwidth} bytes/s carry together more than 2^63 bytes/s"
        )
    return bandwidth * links


def thinned(bandwidth: int, ratio: float | Fraction, what: str = "oversubscription") -> int:
    """Return *bandwidth* divided by *ratio*, rounded down.

    Raises:
        TopologyError: the ratio is not a positive number, or leaves nothing; names *what*.
    """
    try:
        rate = int(bandwidth / Fraction(str(ratio)))
    except (ValueError, ZeroDivisionError):
        rate = 0
    if not 0 < rate < 2**63:
        raise TopologyError(
            f"{what}: expected a number such as 4 that leaves some of {bandwidth} bytes/s, got {ratio!r}"
        )
    return rate
