"""GPU nodes whose network cards are on leaves by rails, on spines and, above several pods, on cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np

from sim.errors import TopologyError
from sim.topology.kinds.nodes import NodesRouting, cards_of_node
from sim.topology.kinds.switch_tree import SwitchTree, joint, switch_tree, thinned, uplinks
from sim.topology.layout import Links, NetworkLayout, Spreading
from sim.topology.parameters import Bandwidth, Count, Latency, NumRanks, Ratio, Seed
from sim.topology.routing import Cut, Ranks, Wiring, choose, cut_around_ranks
from sim.topology.routing.hashing import connection
from sim.topology.sharing_table import SharingArgument
from sim.units import parse_count, parse_time

Fabric: TypeAlias = Literal["infiniband", "spectrum_x", "ethernet"]
IntraLink: TypeAlias = Literal["nvlink", "pcie"]

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
    num_ranks: NumRanks,
    ranks_per_node: Count,
    intra_link: IntraLink = "nvlink",
    pxn: bool | None = None,
    intra_bandwidth: Bandwidth,
    intra_sharing: SharingArgument = None,
    intra_latency: Latency | None = None,
    nics_per_node: Count | None = None,
    nic_bandwidth: Bandwidth,
    nic_sharing: SharingArgument = None,
    nic_latency: Latency = NIC_LATENCY,
    rails: Count | None = None,
    nodes_per_leaf: Count,
    oversubscription: Ratio = 1.0,
    nodes_per_pod: Count | None = None,
    core_oversubscription: Ratio = 1.0,
    uplinks_per_leaf: Count | None = None,
    uplinks_per_spine: Count | None = None,
    uplink_sharing: SharingArgument = None,
    uplink_latency: Latency = UPLINK_LATENCY,
    fabric: Fabric = "infiniband",
    routing: Spreading | None = None,
    seed: Seed = 0,
    name: str = "cluster",
) -> NetworkLayout:
    """Return nodes whose network cards are on a tree of leaves, spines and, above several pods, cores.

    A path has two links inside a node, between nodes two under one leaf, four inside a pod, six between pods;
    over PCIe, and between rails over NVLink, two more.  Without pods all spines are linked to all leaves.

    Args:
        num_ranks: number of ranks, which fill the nodes in order, as nodes fill leaves and pods.
        ranks_per_node: GPUs of a node, which is an NVLink domain: 8 of an HGX board, 72 of an NVL72 rack.
        intra_link: ``nvlink``, beside which messages reach the card; or ``pcie``, over which they do.
        pxn: whether a message to another rail goes over NVLink to a card of that rail; by default where there
            is NVLink, as NCCL does (NCCL_PXN_DISABLE).
        intra_bandwidth: of each rank's links inside the node, one way: NVLink's or PCIe's.
        intra_sharing: what flows get of each link inside a node, as for `switch`.
        intra_latency: of each link inside a node; by default 300 ns of NVLink, 500 ns of PCIe.
        nics_per_node: network cards of a node, as for `nodes`.  By default one for each rank.
        nic_bandwidth: of each card and direction.
        nic_sharing: of each link between a card and its leaf.
        nic_latency: of each link between a card and its leaf.
        rails: leaves to which the cards of a node go, card i to the leaf of rail ``i % rails``; must divide
            the cards.  By default one for each card (rail-optimised); 1: all to the leaf of their rack.
        nodes_per_leaf: nodes that have cards on a leaf: with rails the size of a scalable unit.
        oversubscription: what the cards on a leaf send at most, over what its uplinks carry.
        nodes_per_pod: nodes whose leaves are on the same spines, a multiple of *nodes_per_leaf*; None: all.
        core_oversubscription: what the leaves of a pod send up at most, over what its links to cores carry.
        uplinks_per_leaf: cables from a leaf, each to another spine; by default so many that one carries
            what a card does.  ``spray`` does not depend on it.
        uplinks_per_spine: cables from a spine, each to another core; by default likewise.
        uplink_sharing: of each link between switches.
        uplink_latency: of each link between switches.
        fabric: of which follows the *routing*: ``spray`` of InfiniBand and Spectrum-X, ``ecmp`` of other
            Ethernet.
        routing: over equal paths: ``spray``, evenly over all; ``ecmp``, one by hash of source,
            destination and channel; ``static``, one by destination (d-mod-k).
        seed: of the hash.
        name: for people.

    Errors as for `switch`, and for counts that do not fit together, a ratio that leaves no bandwidth, or an
    unknown word.
    """
    for what, word, known in (("fabric", fabric, ROUTING), ("intra_link", intra_link, INTRA_LATENCY)):
        if word not in known:
            raise TopologyError(f"{what}: expected one of {', '.join(known)}, got {word!r}")
    ranks, per_node = parse_count(num_ranks, "num_ranks"), parse_count(ranks_per_node, "ranks_per_node")
    cards, of_rank = cards_of_node(per_node if nics_per_node is None else nics_per_node, per_node)
    rails = _divisor(rails, "rails", cards, "nics_per_node")
    nodes = NodesRouting(ranks, per_node, per_node // cards)

    unit = parse_count(nodes_per_leaf, "nodes_per_leaf")
    leaves = -(-nodes.num_nodes // unit) * rails
    per_leaf = unit * cards // rails
    per_pod = leaves if nodes_per_pod is None else _units(nodes_per_pod, unit) * rails
    if nodes_per_pod is None and (core_oversubscription != 1 or uplinks_per_spine is not None):
        what = "uplinks_per_spine" if core_oversubscription == 1 else "core_oversubscription"
        raise TopologyError(f"{what}: without nodes_per_pod there are no cores; say how large a pod is")

    delay = INTRA_LATENCY[intra_link] if intra_latency is None else intra_latency
    inside = Links.read(2 * ranks, intra_bandwidth, delay, intra_sharing, "intra_")
    nics = Links.read(2 * nodes.num_nics, nic_bandwidth, nic_latency, nic_sharing, "nic_")
    nics = nics._replace(bandwidth=joint(nics.bandwidth, of_rank, "nic_bandwidth"))
    up = thinned(joint(nics.bandwidth, per_leaf, "nic_bandwidth"), oversubscription)
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

    over_pcie = intra_link == "pcie"
    if pxn and over_pcie:
        raise TopologyError("pxn: goes over NVLink, and intra_link is 'pcie'; leave one of them out")
    by_proxy = rails > 1 and not over_pcie if pxn is None else pxn
    whole = ClusterRouting(nodes, rails, unit, tree, over_pcie, by_proxy)
    hop = parse_time(uplink_latency, "uplink_latency")
    trunks = uplinks(tree, *_shared_out(tree, up, over), hop, uplink_sharing)
    return NetworkLayout(name, ranks, min(ranks, per_node), [inside, nics, *trunks], whole)


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


@dataclass(frozen=True)
class ClusterRouting:
    """Nodes as `NodesRouting` has them, with a tree of switches in place of the one between their cards.

    Card i of each node is of rail ``i % rails``.  The nodes under one set of leaves, a scalable unit, have a
    leaf for each rail, on which all their cards of that rail are: with a rail for each card the cluster is
    rail-optimised, with one rail all cards of a node are on the leaf of their rack.

    A message to another node crosses the up link of its rank's card, the links of the tree and the down link
    of the peer's card.  Over PCIe it crosses the up link of its rank before, and the down link of the peer
    behind.  With PXN a message to another rail goes over NVLink first, to the rank whose place in the node is
    that of the peer, and leaves by the card of that one, so that it stays on one rail; where the last node
    has no such rank, it climbs to a spine.

    Links: as of `nodes`, then those of the tree.

    Attributes:
        nodes: what is inside the nodes, and their cards.
        rails: leaves of a unit; divides the cards of a node.
        nodes_per_unit: nodes under one set of leaves.
        tree: whose ports are the cards: first those of the unit's first leaf.
        over_pcie: whether messages to a card cross the rank's links inside the node.
        pxn: whether messages change to the rail of their destination inside the node.
    """

    nodes: NodesRouting
    rails: int
    nodes_per_unit: int
    tree: SwitchTree
    over_pcie: bool = False
    pxn: bool = False

    @property
    def first_of_tree(self) -> int:
        """Number of the first link of the tree."""
        return 2 * (self.nodes.num_ranks + self.nodes.num_nics)

    def _port(self, card: Any) -> Any:
        """Return the port of the tree on which *card*, or each of an array of them, is."""
        node, number = card // self.nodes.nics_per_node, card % self.nodes.nics_per_node
        leaf = node // self.nodes_per_unit * self.rails + number % self.rails
        per_node = self.nodes.nics_per_node // self.rails
        place = node % self.nodes_per_unit * per_node + number // self.rails
        return leaf * self.tree.ports_per_leaf + place

    @property
    def by_channel(self) -> bool:
        """Whether connections of two ranks may take different ways."""
        return self.tree.ecmp_seed is not None

    def walk(self, source: Ranks, destination: Ranks, channel: Ranks = 0) -> Iterator[Ranks]:
        """Yield the links inside the node, or those to the card, through the tree and from the other card."""
        nodes, ranks = self.nodes, self.nodes.num_ranks
        far = source // nodes.ranks_per_node != destination // nodes.ranks_per_node
        card, far_card = source // nodes.ranks_per_nic, destination // nodes.ranks_per_nic

        if self.pxn:
            proxy = source - source % nodes.ranks_per_node + destination % nodes.ranks_per_node
            other = (card % nodes.nics_per_node - far_card % nodes.nics_per_node) % self.rails != 0
            by_proxy = far & other & (proxy < ranks)
            yield choose(by_proxy, source, -1)
            yield choose(by_proxy, ranks + proxy, -1)
            card = choose(by_proxy, proxy // nodes.ranks_per_nic, card)
        if self.over_pcie:
            yield source
        yield choose(far, 2 * ranks + card, -1 if self.over_pcie else source)
        ports = self._port(card), self._port(far_card)
        for link in self.tree.walk(self.first_of_tree, *ports, connection(source, channel), destination):
            yield choose(far, link, -1)
        arrival = 2 * ranks + nodes.num_nics + far_card
        yield choose(far, arrival, -1 if self.over_pcie else ranks + destination)
        if self.over_pcie:
            yield ranks + destination

    def link_name(self, link: int) -> str:
        """Return for example ``rank 3 up``, ``node 1 NIC 0 down`` or ``leaf 0 to spine 1``."""
        if link < self.first_of_tree:
            return self.nodes.link_name(link)
        return self.tree.link_name(link - self.first_of_tree)

    def wiring(self) -> Wiring:
        """Return the vertices of the nodes, as of `NodesRouting`, then the switches from the leaves up.

        Over PCIe a card is joined to its node's switch, else to its ranks.
        """
        inside, nodes = self.nodes.wiring(), self.nodes
        ranks, cards = nodes.num_ranks, nodes.num_nics
        first_leaf = len(inside.names) - 1  # in place of the one switch
        names, tail, head = self.tree.wiring(first_leaf)
        leaf = first_leaf + self._port(np.arange(cards)) // self.tree.ports_per_leaf

        joins = inside.joins
        if self.over_pcie:
            own_switch = ranks + joins // nodes.ranks_per_node
            joins = np.unique(np.where(joins < ranks, own_switch, joins), axis=0)
        return Wiring(
            (*inside.names[:-1], *names),
            np.concatenate([inside.tail[: 2 * ranks + cards], leaf, tail]),
            np.concatenate([inside.head[: 2 * ranks], leaf, inside.head[2 * ranks + cards :], head]),
            joins,
        )

    def cuts(self) -> list[Cut]:
        """Return the cuts around each pod, each unit, each node and each rank."""
        ranks = np.arange(self.nodes.num_ranks)
        first_leaf = ranks // (self.nodes.ranks_per_node * self.nodes_per_unit) * self.rails
        name = "leaf" if self.rails == 1 else "scalable unit"
        around = [*self.tree.cuts(self.first_of_tree, first_leaf, name, self.rails), *self.nodes.cuts()]
        if self.over_pcie:
            around[-1] = cut_around_ranks(self.nodes.num_ranks)
        return around
