"""A network: its ranks, its directed links, and the way a message takes.

A topology is data.  Each link has a bandwidth and a latency; a message from one rank to another
pays the latencies of all links on its way and then occupies them together.  Networks are
full duplex: the two directions of a cable are two links.

    Topology.switch      one non-blocking switch; a link up and a link down for each rank
    Topology.ring        links between neighbours
    Topology.torus       links between neighbours in each of several dimensions
    Topology.nodes       nodes of several ranks with a fast network inside and NICs between them
    Topology.leaf_spine  a tree of two levels
    Topology.fat_tree    the k-ary fat tree: three levels of equal switches
    Topology.graph       any ranks, switches and links
    Topology.from_file   any of these, as a TOML file or preset describes it
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from os import PathLike
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from sim.errors import TopologyError
from sim.topology.parameters import count, ecmp_seed, link_arrays, thinned
from sim.topology.routing import (
    DetourRouting,
    FatTreeRouting,
    GraphRouting,
    LeafSpineRouting,
    LinkSpec,
    NodesRouting,
    Routing,
    SwitchRouting,
    TorusRouting,
)
from sim.topology.routing.table import route_table
from sim.units import Int64Array, Quantity, parse_bandwidth, parse_time

if TYPE_CHECKING:
    from sim.hardware import Hardware

Spreading: TypeAlias = Literal["static", "ecmp"]


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
        ranks = count(num_ranks, "num_ranks")
        kinds = [(2 * ranks, parse_bandwidth(bandwidth), parse_time(latency, "latency"))]
        return cls(name, ranks, 1, *link_arrays(kinds), SwitchRouting(ranks))

    @classmethod
    def ring(cls, *, num_ranks: int, bandwidth: Quantity, latency: Quantity, name: str = "ring") -> Topology:
        """Return ranks with a link to each neighbour; messages go the shorter way round.

        On a tie they go towards the next higher rank.  Arguments and errors as for `switch`.
        """
        ranks = count(num_ranks, "num_ranks")
        routing = TorusRouting((ranks,))
        kinds = [(routing.num_links, parse_bandwidth(bandwidth), parse_time(latency, "latency"))]
        return cls(name, ranks, 1, *link_arrays(kinds), routing)

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
        places = count(num_nodes, "num_nodes") * count(ranks_per_node, "ranks_per_node")
        ranks = places if num_ranks is None else count(num_ranks, "num_ranks")
        if ranks > places:
            raise TopologyError(
                f"num_ranks: {ranks} ranks, but {num_nodes} nodes of {ranks_per_node} hold {places}"
            )
        if ranks_per_node % count(nics_per_node, "nics_per_node"):
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
        return cls(name, ranks, min(ranks, ranks_per_node), *link_arrays(kinds), routing)

    @classmethod
    def torus(
        cls, *, shape: Sequence[int], bandwidth: Quantity, latency: Quantity, name: str = "torus"
    ) -> Topology:
        """Return a grid of ranks that is closed to a ring in each dimension.

        Args:
            shape: sizes of the dimensions, any number of them; ranks are numbered row by row.
            bandwidth: of each link and direction.
            latency: of each link.
            name: for people.

        Messages go along the first dimension, then the second, and so on; see `TorusRouting`.
        Errors as for `switch`.
        """
        if not isinstance(shape, list | tuple) or not shape:
            raise TopologyError(
                f"shape: expected the sizes of the dimensions, such as (4, 4, 4), got {shape!r}"
            )
        routing = TorusRouting(tuple(count(size, "shape") for size in shape))
        kinds = [(routing.num_links, parse_bandwidth(bandwidth), parse_time(latency, "latency"))]
        return cls(name, routing.num_ranks, 1, *link_arrays(kinds), routing)

    @classmethod
    def leaf_spine(
        cls,
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
        name: str = "leaf_spine",
    ) -> Topology:
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
            name: for people.

        Raises:
            TopologyError: counts that are not positive, an unknown routing.
            UnitError: a bandwidth or latency that is out of range or cannot be read.
        """
        tree = LeafSpineRouting(
            count(num_ranks, "num_ranks"),
            count(hosts_per_leaf, "hosts_per_leaf"),
            count(num_spines, "num_spines"),
            ecmp_seed(routing, "static", seed),
        )
        up = latency if uplink_latency is None else uplink_latency
        kinds = [
            (2 * num_ranks, parse_bandwidth(bandwidth), parse_time(latency, "latency")),
            (
                2 * tree.num_uplinks,
                parse_bandwidth(uplink_bandwidth, "uplink_bandwidth"),
                parse_time(up, "uplink_latency"),
            ),
        ]
        return cls(name, tree.num_ranks, 1, *link_arrays(kinds), tree)

    @classmethod
    def fat_tree(
        cls,
        *,
        k: int,
        bandwidth: Quantity,
        latency: Quantity,
        oversubscription: int | float | Fraction = 1,
        num_ranks: int | None = None,
        routing: Spreading = "static",
        seed: int = 0,
        name: str = "fat_tree",
    ) -> Topology:
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
            name: for people.

        Raises:
            TopologyError: an odd k, more ranks than places, an oversubscription that is not positive
                or leaves no bandwidth, an unknown routing.
            UnitError: a bandwidth or latency that is out of range or cannot be read.
        """
        if count(k, "k") % 2:
            raise TopologyError(f"k: expected an even number of ports, got {k}")
        places = k**3 // 4
        ranks = places if num_ranks is None else count(num_ranks, "num_ranks")
        if ranks > places:
            raise TopologyError(f"num_ranks: {ranks} ranks, but a fat tree with k = {k} holds {places}")
        tree = FatTreeRouting(ranks, int(k), ecmp_seed(routing, "static", seed))
        rate, delay = parse_bandwidth(bandwidth), parse_time(latency, "latency")
        kinds = [(2 * ranks, rate, delay), (4 * places, thinned(rate, oversubscription), delay)]
        return cls(name, ranks, 1, *link_arrays(kinds), tree)

    @classmethod
    def graph(
        cls,
        *,
        ranks: Sequence[str],
        switches: Sequence[str] = (),
        links: Sequence[LinkSpec],
        routes: Mapping[tuple[str, str], Sequence[str]] | None = None,
        ranks_per_node: int = 1,
        routing: Literal["shortest", "ecmp"] = "shortest",
        metric: Literal["hops", "latency"] = "hops",
        seed: int = 0,
        name: str = "graph",
    ) -> Topology:
        """Return any network.

        Args:
            ranks: names of the ranks, rank 0 first.
            switches: names of what else links end at.
            links: directed links, numbered in this order; a cable that carries both ways is two.
            routes: for pairs of ranks (source, destination), the names on the way between them; other
                pairs take a shortest path.
            ranks_per_node: consecutive ranks that make a node.
            routing: of several shortest paths, ``shortest`` takes that whose links come first, ``ecmp``
                one by hash.
            metric: what a shortest path has least of: ``hops``, or ``latency`` and then hops.
            seed: of the hash.
            name: for people.

        Raises:
            TopologyError: names that are not there or come twice, a rank that cannot reach another, a
                route over links that do not exist, impossible numbers.
        """
        if metric not in ("hops", "latency"):
            raise TopologyError(f"metric: expected 'hops' or 'latency', got {metric!r}")
        seed_or_none = ecmp_seed(routing, "shortest", seed)
        specs = [LinkSpec(*link) for link in links]
        for spec in specs:
            what = f"link {spec.tail!r} to {spec.head!r}"
            count(spec.bandwidth, f"{what}, bytes per second")
            count(spec.latency, f"{what}, latency in picoseconds", least=0)
        num_ranks = count(len(ranks), "number of ranks")
        graph = GraphRouting.of(ranks, switches, specs, routes or {}, metric == "latency", seed_or_none)
        kinds = [(0, 1, 0), *((1, spec.bandwidth, spec.latency) for spec in specs)]
        per_node = min(count(ranks_per_node, "ranks_per_node"), num_ranks)
        return cls(name, num_ranks, per_node, *link_arrays(kinds), graph)

    def without_links(self, links: Collection[int]) -> Topology:
        """Return this network with routes that avoid *links*; all links keep their numbers.

        Routes that cross none of them stay as they are; see `DetourRouting`.

        Raises:
            TopologyError: there is no such link, or some ranks are cut off without them.
        """
        avoided = {int(link) for link in links}
        for link in avoided:
            self.link_name(link)
        detour = DetourRouting.around(self.routing, avoided)
        if lost := detour.cut_off(self.num_ranks):
            names = ", ".join(self.link_name(link) for link in detour.avoided)
            few = ", ".join(map(str, lost[:8])) + " and more" * (len(lost) > 8)
            ranks = f"rank{'s' * (len(lost) > 1)} {few}"
            raise TopologyError(f"{self.name} without {names}: {ranks} cut off from the other ranks")
        return replace(self, routing=detour)

    @classmethod
    def from_file(cls, path: str | PathLike[str], num_ranks: int | None = None) -> Topology:
        """Return the network that a TOML file describes, or the preset of that name.

        Args:
            path: of the file; see ``docs/files.md``.
            num_ranks: how many, where the file does not say.

        Raises:
            NetworkFileError: no such file or preset, or it is wrong; names file, line and field.
            TopologyError: another number of ranks than the file states, or none where it states none.
        """
        from sim.topology.description import load_network

        return load_network(path).topology(num_ranks)

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
        return route_table(self.routing, first, last)

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
