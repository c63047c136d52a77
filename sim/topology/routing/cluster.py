"""A cluster of GPU nodes: NVLink or PCIe inside each, network cards on a tree of switches, by rails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.topology.routing.nodes import NodesRouting
from sim.topology.routing.protocol import Cut, Ranks, Wiring, choose
from sim.topology.routing.switch_tree import SwitchTree


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

    def walk(self, source: Ranks, destination: Ranks) -> Iterator[Ranks]:
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
        for link in self.tree.walk(self.first_of_tree, *ports, source, destination):
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
            around[-1] = Cut("rank", ranks, ranks[:, None], self.nodes.num_ranks + ranks[:, None])
        return around
