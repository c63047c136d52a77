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
    Topology.cluster     GPU nodes whose cards are on a tree, by rails
    Topology.host        one host: ranks that share its memory
    Topology.graph       any ranks, switches and links
    Topology.from_file   any of these, as a TOML file or preset describes it
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property, wraps
from os import PathLike
from typing import TYPE_CHECKING, Any, ParamSpec, cast

import numpy as np
import numpy.typing as npt

from sim.errors import TopologyError
from sim.topology.kinds.cluster import ClusterRouting, cluster
from sim.topology.kinds.fat_tree import fat_tree
from sim.topology.kinds.graph import graph
from sim.topology.kinds.host import host
from sim.topology.kinds.leaf_spine import leaf_spine
from sim.topology.kinds.nodes import nodes
from sim.topology.kinds.ring import ring
from sim.topology.kinds.switch import switch
from sim.topology.kinds.torus import torus
from sim.topology.layout import Cache, NetworkLayout
from sim.topology.link_sharing import LinkSharing
from sim.topology.routing import DetourRouting, Routing
from sim.topology.routing.table import route_table
from sim.units import Int64Array, is_whole

if TYPE_CHECKING:
    from sim.hardware import Hardware
    from sim.measured import MeasuredCurve

P = ParamSpec("P")

_NAMED_RANKS = 8
"""At most so many ranks are named in an error."""


def _made_by(kind: Callable[P, NetworkLayout]) -> Callable[P, Topology]:
    """Return a constructor of topologies with the arguments and the documentation of *kind*."""

    @wraps(kind)
    def make(*args: P.args, **kwargs: P.kwargs) -> Topology:
        return Topology.of(kind(*args, **kwargs))

    shown = inspect.signature(kind).replace(return_annotation="Topology")
    make.__signature__ = shown  # type: ignore[attr-defined]  # for help(Topology.switch)
    return make


@dataclass(frozen=True, eq=False, repr=False)
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
        sharing: what flows get of a link, by how many they are and in which directions; None: all of it.
        cache: which buffers move faster through the memory of a host; None: none.
        hardware: what the GPUs and network cards are, for NCCL's own model; None: unknown.
        in_network_reduction: whether the switches can reduce and multicast, as NVLink SHARP does.
        measured: what collectives take by measurement, for ``model="measured"``.
    """

    name: str
    num_ranks: int
    ranks_per_node: int
    link_bandwidth: Int64Array
    link_latency: Int64Array
    routing: Routing
    sharing: LinkSharing | None = None
    cache: Cache | None = None
    hardware: Hardware | None = None
    in_network_reduction: bool = False
    measured: tuple[MeasuredCurve, ...] = ()

    def __repr__(self) -> str:
        return f"Topology({self.name}, {self.num_ranks} ranks, {self.num_links} links)"

    switch = staticmethod(_made_by(switch))
    ring = staticmethod(_made_by(ring))
    torus = staticmethod(_made_by(torus))
    nodes = staticmethod(_made_by(nodes))
    leaf_spine = staticmethod(_made_by(leaf_spine))
    fat_tree = staticmethod(_made_by(fat_tree))
    cluster = staticmethod(_made_by(cluster))
    host = staticmethod(_made_by(host))
    graph = staticmethod(_made_by(graph))

    @classmethod
    def of(cls, layout: NetworkLayout, **known: Any) -> Topology:
        """Return the network that *layout* comes to, of which this is *known*, such as its hardware."""
        return cls(
            layout.name,
            layout.num_ranks,
            layout.ranks_per_node,
            *layout.link_arrays(),
            layout.routing,
            layout.sharing(),
            layout.cache,
            **known,
        )

    def __post_init__(self) -> None:
        self.link_bandwidth.setflags(write=False)
        self.link_latency.setflags(write=False)

    def holding(self, nbytes: int) -> Topology:
        """Return this network as it is for buffers of *nbytes* bytes, of all ranks together.

        It is another where they fit into memory near the processors; see `cache`.
        """
        if self.cache is None or nbytes > self.cache.nbytes:
            return self
        faster = np.rint(self.link_bandwidth * self.cache.speedup).astype(np.int64)
        return replace(self, link_bandwidth=faster, cache=None)

    @cached_property
    def without_tree(self) -> Topology | None:
        """This network as if its tree carried whatever cards send; None: it is no cluster."""
        if not isinstance(self.routing, ClusterRouting):
            return None
        bandwidth = self.link_bandwidth.copy()
        bandwidth[self.routing.first_of_tree :] = bandwidth[: self.routing.first_of_tree].sum()
        return replace(self, link_bandwidth=bandwidth)

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
            ranks = ", ".join(map(str, lost[:_NAMED_RANKS]))
            ranks = f"rank {ranks}" if len(lost) == 1 else f"ranks {ranks}"
            more = " and more" if len(lost) > _NAMED_RANKS else ""
            raise TopologyError(f"{self.name} without {names}: {ranks}{more} cut off from the other ranks")
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
        from sim import load_network  # which brings pydantic along

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

    def link_number(self, link: int | str) -> int:
        """Return the number of *link*, which is given by its number or its name.

        Raises:
            TopologyError: there is no such link; names the nearest.
        """
        if isinstance(link, str):
            if link in self._number_of_link:
                return self._number_of_link[link]
            nearest = get_close_matches(link, self._number_of_link, n=1, cutoff=0)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise TopologyError(f"{self.name} has no link {link!r}{hint}")
        if not is_whole(link) or not 0 <= link < self.num_links:
            raise TopologyError(f"{self.name} has links 0 to {self.num_links - 1}, got {link!r}")
        return int(link)

    @cached_property
    def _number_of_link(self) -> dict[str, int]:
        return {self.link_name(link): link for link in range(self.num_links)}

    def route(self, source: int, destination: int, channel: int = 0) -> tuple[int, ...]:
        """Return the links from *source* to *destination* by their connection *channel*, in order.

        Raises:
            TopologyError: a rank that does not exist, or one and the same rank twice.
        """
        for rank in (source, destination):
            if not 0 <= rank < self.num_ranks:
                raise TopologyError(f"rank {rank}: {self.name} has ranks 0 to {self.num_ranks - 1}")
        if source == destination:
            raise TopologyError(f"rank {source}: there is no route from a rank to itself")
        walk = self.routing.walk(int(source), int(destination), int(channel))
        return tuple(link for link in cast(Iterator[int], walk) if link >= 0)

    def routes(
        self, sources: npt.ArrayLike, destinations: npt.ArrayLike, channels: npt.ArrayLike = 0
    ) -> Int64Array:
        """Return the routes of m pairs of ranks at once.

        Args:
            sources: m ranks.
            destinations: m ranks, each another than its source.
            channels: of the connection between each two; or one for all.

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
        channel = np.broadcast_to(np.asarray(channels, dtype=np.int64), first.shape)
        return route_table(self.routing, first, last, channel)

    def digest(self) -> str:
        """Return 16 hexadecimal digits that two networks share only if they behave alike."""
        parts: tuple[object, ...] = (
            self.num_ranks,
            self.ranks_per_node,
            self.routing,
            self.hardware,
            self.in_network_reduction,
            *self.measured,
        )
        if self.sharing is not None:
            parts = (*parts, self.sharing.described())
        if self.cache is not None:
            parts = (*parts, self.cache)
        content = repr(parts).encode() + self.link_bandwidth.tobytes() + self.link_latency.tobytes()
        return hashlib.sha256(content).hexdigest()[:16]
