"""Trees of switches: of two levels, and the k-ary fat tree."""

from __future__ import annotations

from fractions import Fraction

from sim.errors import TopologyError
from sim.topology.fabric import of_ports
from sim.topology.layout import NetworkLayout, Spreading, ecmp_seed, layout
from sim.topology.routing import FatTreeRouting, LeafSpineRouting
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
    fabric: str | None = None,
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
        routing: which spine a message takes: ``static`` by its destination, ``ecmp`` by hash.
        seed: of the hash.
        sharing: what flows get of each rank's link, as for `switch`.
        uplink_sharing: of each link between a leaf and a spine.
        fabric: what flows get of a port of a leaf or a spine, as for `switch`.
        name: for people.

    Raises:
        TopologyError: counts that are not positive, an unknown routing or fabric.
        UnitError: a bandwidth or latency that is out of range or cannot be read.
    """
    tree = LeafSpineRouting(
        parse_count(num_ranks, "num_ranks"),
        parse_count(hosts_per_leaf, "hosts_per_leaf"),
        parse_count(num_spines, "num_spines"),
        ecmp_seed(routing, "static", seed),
    )

    up = latency if uplink_latency is None else uplink_latency
    kinds = [
        *2 * [(num_ranks, parse_bandwidth(bandwidth), parse_time(latency, "latency"))],
        (
            2 * tree.num_uplinks,
            parse_bandwidth(uplink_bandwidth, "uplink_bandwidth"),
            parse_time(up, "uplink_latency"),
        ),
    ]
    tables = (sharing, of_ports(fabric, sharing), of_ports(fabric, uplink_sharing))
    return layout(name, tree.num_ranks, 1, kinds, tree, *tables)


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
    fabric: str | None = None,
    name: str = "fat_tree",
) -> NetworkLayout:
    """Return a k-ary fat tree: three levels of switches with k ports, k³/4 ranks.

    A path has two links under one edge switch, four inside a pod, six between pods.

    Args:
        k: ports of each switch, even.
        bandwidth: of each rank's link to its edge switch, each way.
        latency: of each link.
        oversubscription: what the ranks of an edge switch send at most, over what its links up
            carry.  Links between switches have *bandwidth* divided by it, so networks that differ
            in nothing else can be compared on the same ranks.
        num_ranks: number of ranks, which fill the edge switches in order; by default all places.
        routing: the way up: ``static`` by destination (d-mod-k), ``ecmp`` by hash.
        seed: of the hash.
        sharing: what flows get of each link, as for `switch`.
        fabric: what flows get of a port of a switch, as for `switch`.
        name: for people.

    Raises:
        TopologyError: an odd k, more ranks than places, an oversubscription that is not positive
            or leaves no bandwidth, an unknown routing or fabric.
        UnitError: a bandwidth or latency that is out of range or cannot be read.
    """
    if parse_count(k, "k") % 2:
        raise TopologyError(f"k: expected an even number of ports, got {k}")
    places = k**3 // 4
    ranks = places if num_ranks is None else parse_count(num_ranks, "num_ranks")

    if ranks > places:
        raise TopologyError(f"num_ranks: {ranks} ranks, but a fat tree with k = {k} holds {places}")
    tree = FatTreeRouting(ranks, int(k), ecmp_seed(routing, "static", seed))
    rate, delay = parse_bandwidth(bandwidth), parse_time(latency, "latency")
    kinds = [*2 * [(ranks, rate, delay)], (4 * places, _thinned(rate, oversubscription), delay)]
    ports = of_ports(fabric, sharing)
    return layout(name, ranks, 1, kinds, tree, sharing, ports, ports)


def _thinned(bandwidth: int, oversubscription: float | Fraction) -> int:
    """Return *bandwidth* divided by *oversubscription*, rounded down.

    Raises:
        TopologyError: the divisor is not a positive number, or leaves nothing.
    """
    try:
        rate = int(bandwidth / Fraction(str(oversubscription)))
    except (ValueError, ZeroDivisionError):
        rate = 0
    if not 0 < rate < 2**63:
        raise TopologyError(
            f"oversubscription: expected a number such as 4 that leaves some of {bandwidth} bytes/s, "
            f"got {oversubscription!r}"
        )
    return rate
