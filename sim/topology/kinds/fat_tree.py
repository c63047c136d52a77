"""Three levels of equal switches with k ports."""

from __future__ import annotations

from sim.errors import TopologyError
from sim.topology.fabric import FabricName, of_ports
from sim.topology.kinds.switch_tree import TreeRouting, joint, switch_tree, thinned, uplinks
from sim.topology.layout import Links, NetworkLayout, Spreading
from sim.topology.parameters import Bandwidth, Count, EvenCount, Latency, Ratio, Seed
from sim.topology.sharing_table import SharingArgument
from sim.units import parse_count


def fat_tree(
    *,
    k: EvenCount,
    num_ranks: Count | None = None,
    bandwidth: Bandwidth,
    sharing: SharingArgument = None,
    latency: Latency,
    oversubscription: Ratio = 1.0,
    fabric: FabricName | None = None,
    routing: Spreading = "static",
    seed: Seed = 0,
    name: str = "fat_tree",
) -> NetworkLayout:
    """Return a k-ary fat tree: three levels of switches with k ports, k³/4 ranks.

    With h = k/2: k pods of h edge and h aggregation switches, h·h cores, h ranks an edge switch.  A path has
    two links under one edge switch, four inside a pod, six between pods.  Source: Al-Fares, Loukissas and
    Vahdat, "A scalable, commodity data center network architecture", SIGCOMM 2008.

    Args:
        k: ports of each switch, even.
        num_ranks: number of ranks, which fill the edge switches in order; by default all places.
        bandwidth: of each rank's link to its edge switch, each way.
        sharing: what flows get of each link, as for `switch`.
        latency: of each link.
        oversubscription: what the ranks of an edge switch send at most, over what its links up
            carry.  Links between switches have *bandwidth* divided by it, so networks that differ
            in nothing else can be compared on the same ranks.
        fabric: what flows get of a port of a switch, as for `switch`.
        routing: the way up: ``static`` by destination (d-mod-k), ``ecmp`` by hash, ``spray`` all evenly.
        seed: of the hash.
        name: for people.

    Errors as for `switch`, and for an odd k, more ranks than places, an oversubscription that is not positive
    or leaves no bandwidth, or an unknown routing.
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

    up = Links.read(ranks, bandwidth, latency, sharing)
    down = up._replace(sharing=of_ports(fabric, sharing))
    thin = thinned(up.bandwidth, oversubscription)
    rates = (thin, thin)
    if tree.joint:
        rates = joint(thin, half, "bandwidth"), joint(thin, half**2, "bandwidth")
    trunks = uplinks(tree, *rates, up.latency, of_ports(None if tree.joint else fabric, sharing))
    return NetworkLayout(name, ranks, 1, [up, down, *trunks], TreeRouting(ranks, tree))
