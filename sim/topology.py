"""A network: its ranks, its directed links, and the way a message takes.

A topology is data.  Each link has a bandwidth and a latency; a message from one rank to another
pays the latencies of all links on its way and then occupies them together.  Networks are
full duplex: the two directions of a cable are two links.

    Topology.switch   one non-blocking switch; a link up and a link down for each rank
    Topology.ring     links between neighbours
    Topology.nodes    nodes of several ranks with a fast network inside and NICs between them
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from sim.errors import TopologyError
from sim.routing import NodesRouting, Routing, SwitchRouting, TorusRouting
from sim.units import Int64Array, Quantity, parse_bandwidth, parse_time

if TYPE_CHECKING:
    from sim.hardware import Hardware


@dataclass(frozen=True, eq=False)
class Topology:
    """A network of ``num_ranks`` ranks; `dataclasses.replace` makes one with other links.

    Attributes:
        name: for people.
        num_ranks: number of ranks.
        ranks_per_node: ranks 0 to ``ranks_per_node - 1`` are the first node, and so on; the last
            node may have fewer.
        link_bandwidth: bytes per second of each directed link, int64.
        link_latency: picoseconds of each directed link, int64.
        routing: which links a message crosses.
        hardware: what the GPUs and network cards are, for NCCL's own model; None: unknown.
        in_network_reduction: whether the switches can reduce and multicast, as NVLink SHARP does.
    """

    name: str
    num_ranks: int
    ranks_per_node: int
    link_bandwidth: Int64Array = field(repr=False)
    link_latency: Int64Array = field(repr=False)
    routing: Routing
    hardware: Hardware | None = None
    in_network_reduction: bool = False

    def __post_init__(self) -> None:
        self.link_bandwidth.setflags(write=False)
        self.link_latency.setflags(write=False)

    @classmethod
    def switch(
        cls, *, num_ranks: int, bandwidth: Quantity, latency: Quantity, name: str = "switch"
    ) -> Topology:
        """Return ranks on one non-blocking switch; a path has two links, up and down.

        Args:
            num_ranks: number of ranks, at least 1.
            bandwidth: of each link and direction, ``"100Gbps"`` or a number of bytes/s.
            latency: of each link, ``"2us"`` or a number of seconds.
            name: for people.

        Raises:
            TopologyError: an impossible number of ranks.
            UnitError: a bandwidth or latency that is out of range or cannot be read.
        """
        ranks = _count(num_ranks, "num_ranks")
        kinds = [(2 * ranks, parse_bandwidth(bandwidth), parse_time(latency, "latency"))]
        return cls(name, ranks, 1, *_links(kinds), SwitchRouting(ranks))

    @classmethod
    def ring(cls, *, num_ranks: int, bandwidth: Quantity, latency: Quantity, name: str = "ring") -> Topology:
        """Return ranks with a link to each neighbour; messages go the shorter way round.

        On a tie they go towards the next higher rank.  Arguments and errors as for `switch`.
        """
        ranks = _count(num_ranks, "num_ranks")
        routing = TorusRouting((ranks,))
        kinds = [(routing.num_links, parse_bandwidth(bandwidth), parse_time(latency, "latency"))]
        return cls(name, ranks, 1, *_links(kinds), routing)

    @classmethod
    def nodes(
        cls,
        *,
        num_nodes: int,
        ranks_per_node: int,
        intra_bandwidth: Quantity,
        intra_latency: Quantity,
        nics_per_node: int,
        nic_bandwidth: Quantity,
        nic_latency: Quantity,
        num_ranks: int | None = None,
        name: str = "nodes",
    ) -> Topology:
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
            name: for people.

        Raises:
            TopologyError: counts that are not positive or do not fit together.
            UnitError: a bandwidth or latency that is out of range or cannot be read.
        """
        places = _count(num_nodes, "num_nodes") * _count(ranks_per_node, "ranks_per_node")
        ranks = places if num_ranks is None else _count(num_ranks, "num_ranks")
        if ranks > places:
            raise TopologyError(
                f"num_ranks: {ranks} ranks, but {num_nodes} nodes of {ranks_per_node} hold {places}"
            )
        if ranks_per_node % _count(nics_per_node, "nics_per_node"):
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
        return cls(name, ranks, min(ranks, ranks_per_node), *_links(kinds), routing)

    @property
    def num_links(self) -> int:
        """Number of directed links."""
        return len(self.link_bandwidth)

    def link_name(self, link: int) -> str:
        """Return a name of *link* for people, such as ``rank 3 up``.

        Raises:
            TopologyError: there is no such link.
        """
        if not 0 <= link < self.num_links:
            raise TopologyError(f"link {link}: {self.name} has links 0 to {self.num_links - 1}")
        return self.routing.link_name(link)

    def route(self, source: int, destination: int) -> tuple[int, ...]:
        """Return the links from *source* to *destination*, in order.

        Raises:
            TopologyError: a rank that does not exist, or one and the same rank twice.
        """
        for rank in (source, destination):
            if not 0 <= rank < self.num_ranks:
                raise TopologyError(f"rank {rank}: {self.name} has ranks 0 to {self.num_ranks - 1}")
        if source == destination:
            raise TopologyError(f"rank {source}: there is no route from a rank to itself")
        walk = self.routing.walk(int(source), int(destination))
        return tuple(link for link in cast(Iterator[int], walk) if link >= 0)

    def routes(self, sources: npt.ArrayLike, destinations: npt.ArrayLike) -> Int64Array:
        """Return the routes of m pairs of ranks at once.

        Args:
            sources: m ranks.
            destinations: m ranks, each another than its source.

        Returns:
            int64 of shape (m, h), h being the longest of these routes: link numbers in order,
            then -1.

        Raises:
            TopologyError: as for `route`.
        """
        first, last = np.asarray(sources, dtype=np.int64), np.asarray(destinations, dtype=np.int64)
        wrong = (
            (first < 0) | (first >= self.num_ranks) | (last < 0) | (last >= self.num_ranks) | (first == last)
        )
        if wrong.any():
            where = int(wrong.argmax())
            self.route(int(first[where]), int(last[where]))
        turns = list(self.routing.walk(first, last)) if len(first) else []
        links = np.full((len(turns), len(first)), -1, dtype=np.int64)
        pairs, length = np.arange(len(first)), np.zeros(len(first), dtype=np.int64)
        for turn in turns:
            links[length, pairs] = turn  # -1 is written over at the next turn
            length += turn >= 0
        return links[: int(length.max(initial=0))].T

    def digest(self) -> str:
        """Return 16 hexadecimal digits that two networks share only if they behave alike."""
        parts = (
            self.num_ranks,
            self.ranks_per_node,
            self.routing,
            self.hardware,
            self.in_network_reduction,
        )
        content = repr(parts).encode() + self.link_bandwidth.tobytes() + self.link_latency.tobytes()
        return hashlib.sha256(content).hexdigest()[:16]


def _links(kinds: list[tuple[int, int, int]]) -> tuple[Int64Array, Int64Array]:
    """Return bandwidths and latencies of links given as (count, bandwidth, latency)."""
    counts = [count for count, _, _ in kinds]
    bandwidth = np.repeat(np.array([kind[1] for kind in kinds], dtype=np.int64), counts)
    latency = np.repeat(np.array([kind[2] for kind in kinds], dtype=np.int64), counts)
    return bandwidth, latency


def _count(value: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise TopologyError(f"{what}: expected a whole number of at least 1, got {value!r}")
    return int(value)
