"""Paths: the links from one rank to another, and the bytes that messages have taken over them."""

from __future__ import annotations

from dataclasses import replace
from operator import index

import numpy as np

from sim.topology import Topology
from sim.topology.routing import Routing
from sim.units import Int64Array


class Path:
    """The way from one rank to another, and how many bytes have been sent on it."""

    __slots__ = ("bytes_sent", "destination", "latency_ps", "links", "source")

    def __init__(self, source: int, destination: int, links: tuple[int, ...], latency_ps: int) -> None:
        self.source, self.destination = source, destination
        self.links = links
        self.latency_ps = latency_ps
        self.bytes_sent = 0


class Paths:
    """The paths of a topology that messages have taken so far."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._latency_ps: list[int] = topology.link_latency.tolist()
        self._between: dict[tuple[int, int], Path] = {}
        self._left: list[Path] = []

    def between(self, source: int, destination: int) -> Path:
        """Return the path from rank *source* to rank *destination*.

        Raises:
            TopologyError: a rank that does not exist, or a rank sending to itself.
        """
        return self._between.get((source, destination)) or self._find(index(source), index(destination))

    def _find(self, source: int, destination: int) -> Path:
        links = self.topology.route(source, destination)
        path = Path(source, destination, links, sum(self._latency_ps[link] for link in links))
        self._between[source, destination] = path
        return path

    def reroute(self, link: int, routing: Routing) -> None:
        """Let messages that are sent from now on take the ways of *routing*, which avoids *link*."""
        self.topology = replace(self.topology, routing=routing)
        for ends, path in list(self._between.items()):
            if link in path.links:
                self._left.append(self._between.pop(ends))

    def instead_of(self, path: Path, nbytes: int) -> Path:
        """Return the path between the ends of *path* that is taken now, for *nbytes* that did not pass it."""
        path.bytes_sent -= nbytes
        other = self.between(path.source, path.destination)
        other.bytes_sent += nbytes
        return other

    @property
    def link_bytes(self) -> Int64Array:
        """The bytes of all messages sent on paths over each link, int64 of shape (num_links,)."""
        total = np.zeros(self.topology.num_links, dtype=np.int64)
        for path in [*self._left, *self._between.values()]:
            total[list(path.links)] += path.bytes_sent
        return total
