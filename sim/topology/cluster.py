"""Clusters of GPU nodes as people buy them: NVLink domains, rails, and an oversubscribed tree of switches."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, TypeAlias

from sim.errors import TopologyError
from sim.topology.layout import NetworkLayout, Spreading, layout
from sim.topology.routing import ClusterRouting, NodesRouting, SwitchTree
from sim.topology.sharing_table import SharingArgument
from sim.topology.trees import joint, switch_tree, thinned, uplinks
from sim.units import Quantity, parse_bandwidth, parse_count, parse_time

Fabric: TypeAlias = Literal["infiniband", "spectrum_x", "ethernet"]
IntraLink: TypeAlias = Literal["nvlink", "pcie"]
Ratio: TypeAlias = int | float | Fraction

ROUTING: dict[str, Spreading] = {"infiniband": "spray", "spectrum_x": "spray", "ethernet": "ecmp"}
"""How a fabric spreads messages unless told otherwise: by adaptive routing, or by hash.

Sources: NCCL, environment variables, NCCL_IB_ADAPTIVE_ROUTING (on by default on InfiniBand, off over RoCE);
NVIDIA, Spectrum-X white paper (adaptive routing of each packet); RFC 2992 (ECMP by hash).
"""

INTRA_LATENCY = {"nvlink": "300ns", "pcie": "500ns"}
"""Of a link inside a node: half of what a hop of NCCL's ring takes by protocol LL (NCCL 2.30, tuning.cc)."""

NIC_LATENCY = "1350ns"
"""Of the link of a card: half of such a hop over a network, 2.7 us."""

UPLINK_LATENCY = "150ns"
"""Of a link between switches: one more switch (NVIDIA Quantum-2: below 150 ns from port to port)."""


def cluster(
    *,
    num_ranks: int,
    ranks_per_node: int,
    intra_bandwidth: Quantity,
    nic_bandwidth: Quantity,
    nodes_per_leaf: int,
    nics_per_node: int | None = None,
    rails: int | None = None,
    oversubscription: Ratio = 1,
    nodes_per_pod: int | None = None,
    core_oversubscription: Ratio = 1,
    fabric: Fabric = "infiniband",
    routing: Spreading | None = None,
    seed: int = 0,
    uplinks_per_leaf: int | None = None,
    uplinks_per_spine: int | None = None,
    intra_link: IntraLink = "nvlink",
    pxn: bool | None = None,
    intra_latency: Quantity | None = None,
    nic_latency: Quantity = NIC_LATENCY,
    uplink_latency: Quantity = UPLINK_LATENCY,
    intra_sharing: SharingArgument = None,
    nic_sharing: SharingArgument = None,
    uplink_sharing: SharingArgument = None,
    name: str = "cluster",
) -> NetworkLayout:
    """Return nodes whose network cards are on a tree of leaves, spines and, above several pods, cores.

    A path has two links inside a node, between nodes two under one leaf, four inside a pod, six between pods;
    over PCIe, and between rails over NVLink, two more.  Without pods all spines are linked to all leaves.

    Args:
        num_ranks: number of ranks, which fill the nodes in order, as nodes fill leaves and pods.
        ranks_per_node: GPUs of a node, which is an NVLink domain: 8 of an HGX board, 72 of an NVL72 rack.
        intra_bandwidth: of each rank's links inside the node, one way: NVLink's or PCIe's.
        nic_bandwidth: of each card and direction.
        nodes_per_leaf: nodes that have cards on a leaf: with rails the size of a scalable unit.
        nics_per_node: network cards of a node; must divide *ranks_per_node*.  By default one for each rank.
        rails: leaves to which the cards of a node go, card i to the leaf of rail ``i % rails``; must divide
            the cards.  By default one for each card (rail-optimised); 1: all to the leaf of their rack.
        oversubscription: what the cards on a leaf send at most, over what its uplinks carry.
        nodes_per_pod: nodes whose leaves are on the same spines, a multiple of *nodes_per_leaf*; None: all.
        core_oversubscription: what the leaves of a pod send up at most, over what its links to cores carry.
        fabric: of which follows the *routing*: ``spray`` of InfiniBand and Spectrum-X, ``ecmp`` of other
            Ethernet.
        routing: over equal paths: ``spray``, evenly over all; ``ecmp``, one by hash of source and
            destination; ``static``, one by destination (d-mod-k).
        seed: of the hash.
        uplinks_per_leaf: cables from a leaf, each to another spine; by default so many that one carries
            what a card does.  ``spray`` does not depend on it.
        uplinks_per_spine: cables from a spine, each to another core; by default likewise.
        intra_link: ``nvlink``, beside which messages reach the card; or ``pcie``, over which they do.
        pxn: whether a message to another rail goes over NVLink to a card of that rail; by default where there
            is NVLink, as NCCL does (NCCL_PXN_DISABLE).
        intra_latency: of each link inside a node; by default 300 ns of NVLink, 500 ns of PCIe.
        nic_latency: of each link between a card and its leaf.
        uplink_latency: of each link between switches.
        intra_sharing: what flows get of each link inside a node, as for `switch`.
        nic_sharing: of each link between a card and its leaf.
        uplink_sharing: of each link between switches.
        name: for people.

    Raises:
        TopologyError: counts that are not positive or do not fit together, a ratio that leaves no
            bandwidth, an unknown word.
        UnitError: a bandwidth or latency that is out of range or cannot be read.
    """
    for what, word, known in (("fabric", fabric, ROUTING), ("intra_link", intra_link, INTRA_LATENCY)):
        if word not in known:
            raise TopologyError(f"{what}: expected one of {', '.join(known)}, got {word!r}")
    ranks, per_node = parse_count(num_ranks, "num_ranks"), parse_count(ranks_per_node, "ranks_per_node")
    cards = _divisor(nics_per_node, "nics_per_node", per_node, "ranks_per_node")
    rails = _divisor(rails, "rails", cards, "nics_per_node")
    nodes = NodesRouting(ranks, per_node, per_node // cards)

    unit = parse_count(nodes_per_leaf, "nodes_per_leaf")
    leaves = -(-nodes.num_nodes // unit) * rails
    per_leaf = unit * cards // rails
    per_pod = leaves if nodes_per_pod is None else _units(nodes_per_pod, unit) * rails
    if nodes_per_pod is None and (core_oversubscription != 1 or uplinks_per_spine is not None):
        what = "uplinks_per_spine" if core_oversubscription == 1 else "core_oversubscription"
        raise TopologyError(f"{what}: without nodes_per_pod there are no cores; say how large a pod is")

    nic = parse_bandwidth(nic_bandwidth, "nic_bandwidth")
    up = thinned(joint(nic, per_leaf, "nic_bandwidth"), oversubscription)
    over = thinned(joint(up, per_pod, "nic_bandwidth"), core_oversubscription, "core_oversubscription")
    tree = switch_tree(
        routing or ROUTING[fabric],
        seed,
        leaves,
        per_leaf,
        _cables(uplinks_per_leaf, "uplinks_per_leaf", per_leaf, oversubscription),
        per_pod,
        _cables(uplinks_per_spine, "uplinks_per_spine", per_pod, core_oversubscription),
    )

    inside = parse_bandwidth(intra_bandwidth, "intra_bandwidth")
    delay = INTRA_LATENCY[intra_link] if intra_latency is None else intra_latency
    kinds = [
        (2 * ranks, inside, parse_time(delay, "intra_latency")),
        (2 * nodes.num_nics, nic, parse_time(nic_latency, "nic_latency")),
        *uplinks(tree, *_shared_out(tree, up, over), parse_time(uplink_latency, "uplink_latency")),
    ]
    over_pcie = intra_link == "pcie"
    if pxn and over_pcie:
        raise TopologyError("pxn: goes over NVLink, and intra_link is 'pcie'; leave one of them out")
    by_proxy = rails > 1 and not over_pcie if pxn is None else pxn
    whole = ClusterRouting(nodes, rails, unit, tree, over_pcie, by_proxy)
    sharing = (intra_sharing, nic_sharing, *3 * (uplink_sharing,))
    return layout(name, ranks, min(ranks, per_node), kinds, whole, *sharing)


def _divisor(given: int | None, what: str, whole: int, of: str) -> int:
    """Return *given*, by default *whole*, if it divides that."""
    number = whole if given is None else parse_count(given, what)
    if whole % number:
        raise TopologyError(f"{what}: {number} does not divide {of}, {whole}")
    return number


def _units(nodes_per_pod: int, nodes_per_leaf: int) -> int:
    """Return how many scalable units make a pod."""
    if parse_count(nodes_per_pod, "nodes_per_pod") % nodes_per_leaf:
        raise TopologyError(
            f"nodes_per_pod: {nodes_per_pod} is no multiple of nodes_per_leaf, {nodes_per_leaf}; "
            "a pod has whole leaves"
        )
    return nodes_per_pod // nodes_per_leaf


def _cables(given: int | None, what: str, below: int, ratio: Ratio) -> int:
    """Return *given*, by default about as many cables as carry what *below* links do, divided by *ratio*."""
    return max(1, round(below / Fraction(str(ratio)))) if given is None else parse_count(given, what)


def _shared_out(tree: SwitchTree, up: int, over: int) -> tuple[int, int]:
    """Return what one link up from a leaf carries, and one from a spine, of what all of a leaf or pod do."""
    spines = tree.num_spines
    return max(1, up // spines), max(1, over // (spines * tree.cores_per_spine))
