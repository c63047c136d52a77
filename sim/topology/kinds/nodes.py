"""Nodes of several ranks with a fast network inside and network cards between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sim.errors import TopologyError
from sim.topology.fabric import FabricName, of_ports
from sim.topology.kinds.switch_tree import joint
from sim.topology.layout import Links, NetworkLayout
from sim.topology.parameters import Bandwidth, Computed, Count, Latency, NumRanks
from sim.topology.routing import Cut, Ranks, Wiring, choose, rank_names, up_or_down
from sim.topology.sharing_table import SharingArgument
from sim.units import parse_count


def nodes(
    *,
    num_nodes: Computed | None = None,
    num_ranks: NumRanks | None = None,
    ranks_per_node: Count,
    intra_bandwidth: Bandwidth,
    intra_sharing: SharingArgument = None,
    intra_latency: Latency,
    nics_per_node: Count,
    nic_bandwidth: Bandwidth,
    nic_sharing: SharingArgument = None,
    nic_latency: Latency,
    fabric: FabricName | None = None,
    name: str = "nodes",
) -> NetworkLayout:
    """Return nodes of several ranks, a switch inside each and NICs on a switch between them.

    A path has two links: inside a node the rank's up link and the peer's down link, between
    nodes the up link of one NIC and the down link of another.

    Args:
        num_nodes: number of nodes; by default as many as *num_ranks* fill.
        num_ranks: number of ranks, which fill the nodes in order; by default all places.
        ranks_per_node: ranks that a node has room for.
        intra_bandwidth: of each rank's links inside the node, ``"300GB/s"`` or bytes/s.
        intra_sharing: what flows get of each link inside a node, as for `switch`.
        intra_latency: of each link inside a node, ``"500ns"`` or seconds.
        nics_per_node: network cards of a node; must divide ``ranks_per_node``, consecutive ranks sharing a
            card, or be a multiple of it: then the cards of a rank are one link of their joint bandwidth, over
            which its messages are spread evenly, as NCCL's channels are.
        nic_bandwidth: of each card and direction.
        nic_sharing: what flows get of each link between a card and the switch.
        nic_latency: of each such link.
        fabric: what flows get of a port of the switch between nodes, as for `switch`.
        name: for people.

    Errors as for `switch`, and for counts that do not fit together or are left out.
    """
    room = parse_count(ranks_per_node, "ranks_per_node")
    if num_nodes is None:
        if num_ranks is None:
            raise TopologyError("num_nodes: expected a number of nodes, or num_ranks, got neither")
        num_nodes = -(-parse_count(num_ranks, "num_ranks") // room)
    places = parse_count(num_nodes, "num_nodes") * room
    ranks = places if num_ranks is None else parse_count(num_ranks, "num_ranks")
    if ranks > places:
        raise TopologyError(
            f"num_ranks: {ranks} ranks, but {num_nodes} nodes of {ranks_per_node} hold {places}"
        )
    cards, of_rank = cards_of_node(nics_per_node, room)
    routing = NodesRouting(ranks, room, room // cards)
    inside = Links.read(2 * ranks, intra_bandwidth, intra_latency, intra_sharing, "intra_")
    up = Links.read(routing.num_nics, nic_bandwidth, nic_latency, nic_sharing, "nic_")
    up = up._replace(bandwidth=joint(up.bandwidth, of_rank, "nic_bandwidth"))
    down = up._replace(sharing=of_ports(fabric, nic_sharing))
    return NetworkLayout(name, ranks, min(ranks, room), [inside, up, down], routing)


def cards_of_node(nics_per_node: int, room: int) -> tuple[int, int]:
    """Return over how many links a node of *room* ranks sends, and how many cards each stands for.

    Raises:
        TopologyError: cards serve ranks unequally.
    """
    number = parse_count(nics_per_node, "nics_per_node")
    if room % number and number % room:
        raise TopologyError(
            f"nics_per_node: {number} neither divides ranks_per_node, {room}, nor is a multiple of it; each "
            "NIC serves equally many ranks, or each rank has equally many"
        )
    return min(number, room), max(1, number // room)


@dataclass(frozen=True)
class NodesRouting:
    """A switch inside each node; between nodes the network cards (NICs), on a switch of theirs.

    A message inside a node crosses the rank's up and the peer's down link there; one to another
    node crosses only the up link of its NIC and the down link of the peer's.  Consecutive ranks
    share a NIC.

    Links, with R ranks on C NICs: up of rank r is ``r``, down is ``R + r``; up of NIC c is
    ``2R + c``, down is ``2R + C + c``.
    """

    num_ranks: int
    ranks_per_node: int
    ranks_per_nic: int

    @property
    def num_nodes(self) -> int:
        """Number of nodes that have a rank."""
        return -(-self.num_ranks // self.ranks_per_node)

    @property
    def nics_per_node(self) -> int:
        """Number of NICs of a full node."""
        return self.ranks_per_node // self.ranks_per_nic

    @property
    def num_nics(self) -> int:
        """Number of NICs that some rank uses."""
        return -(-self.num_ranks // self.ranks_per_nic)

    by_channel = False

    def walk(self, source: Ranks, destination: Ranks, channel: Ranks = 0) -> Iterator[Ranks]:
        """Yield the up link, then the down link, inside the node or of the NICs."""
        near = source // self.ranks_per_node == destination // self.ranks_per_node
        nics = 2 * self.num_ranks
        yield choose(near, source, nics + source // self.ranks_per_nic)
        yield choose(
            near, self.num_ranks + destination, nics + self.num_nics + destination // self.ranks_per_nic
        )

    def link_name(self, link: int) -> str:
        """Return for example ``rank 3 up`` or ``node 1 NIC 0 down``."""
        if link < 2 * self.num_ranks:
            return up_or_down(link, self.num_ranks)
        down, nic = divmod(link - 2 * self.num_ranks, self.num_nics)
        node, nic = divmod(nic, self.nics_per_node)
        return f"node {node} NIC {nic} {'down' if down else 'up'}"

    def _nic_names(self) -> list[str]:
        nics = range(self.nics_per_node)
        return [f"node {node} NIC {nic}" for node in range(self.num_nodes) for nic in nics][: self.num_nics]

    def wiring(self) -> Wiring:
        """Return ranks, ``node 0 switch`` and so on, ``node 0 NIC 0 out`` and ``… in``, and ``switch``.

        Either direction of a NIC is a vertex, joined to its ranks, so that no message passes from
        rank to rank inside a card.
        """
        ranks, nics = np.arange(self.num_ranks), np.arange(self.num_nics)
        own_switch = self.num_ranks + ranks // self.ranks_per_node
        nic_out = self.num_ranks + self.num_nodes + nics
        nic_in = nic_out + self.num_nics
        switch = np.full_like(nics, self.num_ranks + self.num_nodes + 2 * self.num_nics)

        names = (
            *rank_names(self.num_ranks),
            *(f"node {node} switch" for node in range(self.num_nodes)),
            *(f"{nic} {way}" for way in ("out", "in") for nic in self._nic_names()),
            "switch",
        )

        own_nic = ranks // self.ranks_per_nic
        leaving = np.stack([ranks, nic_out[own_nic]], axis=1)
        entering = np.stack([nic_in[own_nic], ranks], axis=1)
        return Wiring(
            names,
            np.concatenate([ranks, own_switch, nic_out, switch]),
            np.concatenate([own_switch, ranks, switch, nic_in]),
            np.concatenate([leaving, entering]),
        )

    def cuts(self) -> list[Cut]:
        """Return the cuts around each node and around each rank."""
        ranks = np.arange(self.num_ranks)
        nics = np.arange(self.num_nodes * self.nics_per_node).reshape(self.num_nodes, self.nics_per_node)
        up = np.where(nics < self.num_nics, 2 * self.num_ranks + nics, -1)
        own_nic = 2 * self.num_ranks + ranks // self.ranks_per_nic
        out = np.stack([ranks, own_nic], axis=1)
        into = np.stack([self.num_ranks + ranks, own_nic + self.num_nics], axis=1)
        return [
            Cut("node", ranks // self.ranks_per_node, up, np.where(up >= 0, up + self.num_nics, -1)),
            Cut("rank", ranks, out, into),
        ]
