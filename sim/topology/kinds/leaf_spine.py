"""Two levels: hosts on leaves, and every leaf on every spine."""

from __future__ import annotations

from sim.topology.fabric import FabricName, of_ports
from sim.topology.kinds.switch_tree import TreeRouting, joint, switch_tree
from sim.topology.layout import Links, NetworkLayout, Spreading
from sim.topology.parameters import Bandwidth, Count, Latency, NumRanks, Seed
from sim.topology.sharing_table import SharingArgument
from sim.units import parse_count


def leaf_spine(
    *,
    num_ranks: NumRanks,
    hosts_per_leaf: Count,
    bandwidth: Bandwidth,
    sharing: SharingArgument = None,
    latency: Latency,
    num_spines: Count = 1,
    uplink_bandwidth: Bandwidth,
    uplink_sharing: SharingArgument = None,
    uplink_latency: Latency | None = None,
    fabric: FabricName | None = None,
    routing: Spreading = "static",
    seed: Seed = 0,
    name: str = "leaf_spine",
) -> NetworkLayout:
    """Return a tree of two levels: every leaf switch is linked to every spine.

    A path has two links inside a leaf and four to another.  Each rank is a node of its own.

    Args:
        num_ranks: number of ranks, which fill the leaves in order.
        hosts_per_leaf: ranks that a leaf has room for.
        bandwidth: of each rank's link to its leaf, each way.
        sharing: what flows get of each rank's link, as for `switch`.
        latency: of each rank's link.
        num_spines: number of spines, so also of links up from a leaf.
        uplink_bandwidth: of the link between a leaf and a spine, each way.
        uplink_sharing: what flows get of each link between a leaf and a spine.
        uplink_latency: of the links between leaves and spines; by default *latency*.
        fabric: what flows get of a port of a leaf or a spine, as for `switch`.
        routing: which spine a message takes: ``static`` by its destination, ``ecmp`` by hash, ``spray`` all
            evenly.
        seed: of the hash.
        name: for people.

    Errors as for `switch`, and for an unknown routing.
    """
    ranks, spines = parse_count(num_ranks, "num_ranks"), parse_count(num_spines, "num_spines")
    leaves = -(-ranks // parse_count(hosts_per_leaf, "hosts_per_leaf"))
    tree = switch_tree(routing, seed, leaves, hosts_per_leaf, spines, leaves)

    delay = latency if uplink_latency is None else uplink_latency
    trunk = Links.read(
        tree.num_links,
        uplink_bandwidth,
        delay,
        of_ports(None if tree.joint else fabric, uplink_sharing),
        "uplink_",
    )
    if tree.joint:
        trunk = trunk._replace(bandwidth=joint(trunk.bandwidth, spines, "uplink_bandwidth"))
    up = Links.read(ranks, bandwidth, latency, sharing)
    down = up._replace(sharing=of_ports(fabric, sharing))
    return NetworkLayout(name, ranks, 1, [up, down, trunk], TreeRouting(ranks, tree))
