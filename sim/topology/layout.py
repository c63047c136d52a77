"""Layouts of networks: what a kind of network comes to, in links and a routing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from sim.topology.link_sharing import LinkSharing
from sim.topology.parameters import Bandwidth, Latency
from sim.topology.routing import Routing
from sim.topology.sharing_table import Sharing, SharingArgument
from sim.units import Int64Array, parse_bandwidth, parse_time

Spreading: TypeAlias = Literal["static", "ecmp", "spray"]
"""How messages are spread over equal paths."""


class Cache(NamedTuple):
    """Memory near processors, of use to buffers that fit into it.

    Attributes:
        nbytes: of the buffers of all ranks together, up to which they do.
        speedup: how many times as fast their messages move.
        copy_speedup: how many times as fast a rank copies within its memory.
    """

    nbytes: int
    speedup: float
    copy_speedup: float = 1.0


class Links(NamedTuple):
    """So many directed links that are alike: bytes per second, picoseconds, what flows get of each."""

    num_links: int
    bandwidth: int
    latency: int
    sharing: SharingArgument = None

    @classmethod
    def read(
        cls, num_links: int, bandwidth: Bandwidth, latency: Latency, sharing: SharingArgument, which: str = ""
    ) -> Links:
        """Return *num_links* links of what people write, *which* being how the names of its parameters begin.

        Raises:
            UnitError: a bandwidth or latency that is out of range or cannot be read.
        """
        rate, delay = parse_bandwidth(bandwidth, f"{which}bandwidth"), parse_time(latency, f"{which}latency")
        return cls(num_links, rate, delay, sharing)


@dataclass(frozen=True)
class NetworkLayout:
    """What a kind of network comes to; `sim.topology.topology.Topology` says what the fields mean.

    Attributes:
        links: in the order of their numbers.  How many they are is known before they are made.
    """

    name: str
    num_ranks: int
    ranks_per_node: int
    links: Sequence[Links]
    routing: Routing
    cache: Cache | None = None

    @property
    def num_links(self) -> int:
        """Number of directed links."""
        return sum(links.num_links for links in self.links)

    def link_arrays(self) -> tuple[Int64Array, Int64Array]:
        """Return the bandwidth and the latency of each link, shape (num_links,)."""
        counts = [links.num_links for links in self.links]
        columns = ([links.bandwidth for links in self.links], [links.latency for links in self.links])
        bandwidth, latency = (np.repeat(np.array(column, dtype=np.int64), counts) for column in columns)
        return bandwidth, latency

    def sharing(self) -> LinkSharing | None:
        """Return what flows get of the links; None: all of each.

        Raises:
            TopologyError: a table that cannot be.
        """
        tables = [(links.num_links, Sharing.of(links.sharing)) for links in self.links]
        return LinkSharing.of(tables, self.routing)
