"""Flow: a message on the links of its path, and the fixed-point units in which its rate is counted."""

from __future__ import annotations

from dataclasses import replace
from operator import index

import numpy as np

from sim.network.launch import Connection, Sender
from sim.topology import Topology
from sim.topology.routing import Routing
from sim.units import SECOND, Int64Array

FRACTION_BITS = 256
"""Rates are ints in units of 2**-256 bytes/s, see [Note: fixed point] in `sim.network.network`."""

TRUSTED_BITS = 96
"""Of durations in picoseconds: how far the end of a flow can be late by rounding its rate."""


def rate_of(bandwidth: int) -> int:
    """Return *bandwidth*, in bytes/s, in units of rates."""
    return bandwidth << FRACTION_BITS


def amount(nbytes: int) -> int:
    """Return *nbytes* in units of rate times picoseconds."""
    return nbytes * SECOND << FRACTION_BITS


def num_bytes(rest: int) -> int:
    """Return *rest*, in units of rate times picoseconds, in bytes, rounded up."""
    return -(-rest // amount(1))


def end_ps(now_ps: int, rest: int, rate: int) -> int:
    """Return the first whole picosecond at which *rest* is through at *rate*, from *now_ps* on.

    *rest* is in units of *rate* times picoseconds.
    """
    return now_ps - ((rate >> TRUSTED_BITS) - rest) // rate


class Path:
    """The way of a connection from one rank to another, and how many bytes have been sent on it."""

    __slots__ = ("bytes_sent", "channel", "destination", "latency_ps", "links", "source")

    def __init__(
        self, source: int, destination: int, links: tuple[int, ...], latency_ps: int, channel: int = 0
    ) -> None:
        self.source, self.destination, self.channel = source, destination, channel
        self.links = links
        self.latency_ps = latency_ps
        self.bytes_sent = 0


class Flow:
    """Message *number* of a *sender* on the links of its path.

    Attributes:
        rest: what was left at *since_ps*, in units of rate times picoseconds.
        rate: at which it goes on from then, in units of 2**-256 bytes/s.
        since_ps: when it got that rate.
        end_ps: when its last byte is through; -1 while that is open.
        order: places it among those that end at one instant.
        endless: whether it goes on until it is removed.
    """

    __slots__ = ("end_ps", "endless", "number", "order", "path", "rate", "rest", "sender", "since_ps")

    def __init__(
        self, path: Path, rest: int, sender: Sender, number: int, order: int, endless: bool = False
    ) -> None:
        self.path = path
        self.rest = rest
        self.sender = sender
        self.number = number
        self.order = order
        self.endless = endless
        self.rate = self.since_ps = 0
        self.end_ps = -1

    def change_rate(self, rate: int, now_ps: int) -> int:
        """Let the flow go on at *rate* from now on; return what it has carried since the last change."""
        carried = self.rate * (now_ps - self.since_ps)
        self.rest -= carried
        self.rate = rate
        self.since_ps = now_ps
        self.end_ps = -1 if self.endless or not rate else end_ps(now_ps, self.rest, rate)
        return carried


class Paths:
    """The paths of a topology that messages have taken so far."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._latency_ps: list[int] = topology.link_latency.tolist()
        self._between: dict[Connection, Path] = {}
        self._left: list[Path] = []

    def between(self, source: int, destination: int, channel: int = 0) -> Path:
        """Return the path from rank *source* to rank *destination* by their connection *channel*.

        Raises:
            TopologyError: a rank that does not exist, or a rank sending to itself.
        """
        known = self._between.get((source, destination, channel))
        return known or self._find(index(source), index(destination), channel)

    def _find(self, source: int, destination: int, channel: int) -> Path:
        links = self.topology.route(source, destination, channel)
        path = Path(source, destination, links, sum(self._latency_ps[link] for link in links), channel)
        self._between[source, destination, channel] = path
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
        other = self.between(path.source, path.destination, path.channel)
        other.bytes_sent += nbytes
        return other

    @property
    def link_bytes(self) -> Int64Array:
        """The bytes of all messages sent on paths over each link, int64 of shape (num_links,)."""
        total = np.zeros(self.topology.num_links, dtype=np.int64)
        for path in [*self._left, *self._between.values()]:
            total[list(path.links)] += path.bytes_sent
        return total
