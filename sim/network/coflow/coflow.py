"""Coflows: messages that take to their links together, and the times that each of them needs there.

A *coflow* is a set of messages whose pairs of ranks stay the same while their sizes may change, such as
those of one step of a collective.  When all of them occupy their links from one instant on and nobody
else does, their ends follow from the sizes alone, however often the step is repeated.  Two ways:

    alone      no two messages share a link: each takes what its narrowest link needs
    classes    messages and links that no exchange of equals could tell apart are one class each
               (colour refinement); the fluid problem is solved for the classes

Both are exact and give, to the picosecond, what `sim.network.network` gives for the same messages one by one.
Where the network has sharing tables, messages that meet on the two directions of a cable share it, too, as
each changes what the other gets.
Where more than `MAX_CLASSES` classes are left, there is no symmetry to use, and no answer.

Sources: Chowdhury and Stoica, "Coflow: a networking abstraction for cluster applications", HotNets 2012,
for the term; `sim.network.sharing` for the rates; for the classes, Cardon and Crochemore, "Partitioning a
graph in O(|A| log₂ |V|)", Theoretical Computer Science 19, 1982.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from sim.errors import UnitError
from sim.network.capacity import LinkCapacities
from sim.network.coflow.classes import Classes, Crossings, class_durations_ps
from sim.network.flow import amount
from sim.network.launch import Connection
from sim.topology import Topology
from sim.units import Int64Array, transfer_ps

MAX_CLASSES = 64
"""Classes of messages up to which a coflow is solved at once."""

_REMEMBERED = 16


class Coflow:
    """Messages between places of a network, on their routes; `between` makes one.

    Attributes:
        source: int64 of shape (m,).
        destination: int64 of shape (m,).
        channel: of the connection that carries each, int64 of shape (m,).
        links: the links of each message in order, shape (m, h), padded with ``num_links``.
        latency_ps: the sum of the latencies of its links, shape (m,).
        shares: whether two of the messages share a link, or a cable whose directions mind each other.
    """

    def __init__(
        self,
        source: Int64Array,
        destination: Int64Array,
        channel: Int64Array,
        links: Int64Array,
        latency_ps: Int64Array,
        capacities: LinkCapacities,
        shares: bool = True,
    ) -> None:
        self.source, self.destination, self.channel = source, destination, channel
        self.links = links
        self.latency_ps = latency_ps
        self._capacities = capacities
        self.shares = shares and capacities.are_shared(links)
        self._known: OrderedDict[bytes, Int64Array | None] = OrderedDict()
        self._alone = (-1, np.zeros(0, dtype=np.int64))

    @classmethod
    def between(
        cls, topology: Topology, source: Int64Array, destination: Int64Array, channel: int | Int64Array = 0
    ) -> Coflow:
        """Return the coflow from *source* to *destination* places, on the routes of *topology*.

        Raises:
            TopologyError: a place that does not exist, or one that sends to itself.
        """
        routes = topology.routes(source, destination, channel)
        channel = np.broadcast_to(np.asarray(channel, dtype=np.int64), source.shape)
        used = routes >= 0
        latency_ps: Int64Array = np.where(used, topology.link_latency[routes], 0).sum(axis=1)
        links = np.where(used, routes, topology.num_links)
        return cls(source, destination, channel, links, latency_ps, LinkCapacities.of(topology))

    def select(self, messages: Int64Array) -> Coflow:
        """Return the coflow of some of the *messages*."""
        return Coflow(
            self.source[messages],
            self.destination[messages],
            self.channel[messages],
            self.links[messages],
            self.latency_ps[messages],
            self._capacities,
            self.shares,
        )

    @cached_property
    def connections(self) -> list[Connection]:
        """Source, destination and channel of each message."""
        columns = self.source.tolist(), self.destination.tolist(), self.channel.tolist()
        return list(zip(*columns, strict=True))

    @cached_property
    def by_latency(self) -> list[tuple[int, Int64Array, Coflow]]:
        """The messages of each latency: that latency, their numbers, and the coflow that they are."""
        latencies = np.unique(self.latency_ps).tolist()
        if len(latencies) == 1:
            return [(latencies[0], np.arange(len(self)), self)]
        numbers = [np.flatnonzero(self.latency_ps == latency_ps) for latency_ps in latencies]
        return [
            (latency_ps, some, self.select(some)) for latency_ps, some in zip(latencies, numbers, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.source)

    @property
    def no_link(self) -> int:
        """What stands in `links` for no link."""
        return self._capacities.num_links

    @cached_property
    def reach(self) -> Int64Array:
        """The links of each message and those on which others would change its rate, padded as `links`."""
        return self._capacities.with_opposites(self.links)

    @cached_property
    def reached(self) -> list[int]:
        """All links of `reach`."""
        links: list[int] = np.unique(self.reach).tolist()
        return links[:-1] if links and links[-1] == self.no_link else links

    @cached_property
    def crossings(self) -> Crossings:
        """Which messages cross which link."""
        return Crossings.of(self.links, self.no_link)

    @cached_property
    def narrowest(self) -> Int64Array:
        """What a message alone gets of its slowest link, in bytes/s, shape (m,)."""
        alone = self._capacities.alone
        slowest: Int64Array = alone[self.links].min(axis=1, initial=alone[-1])
        return slowest

    def is_together(self, begin: Int64Array) -> bool:
        """Return whether messages that share a link take to it at one time, if they do at *begin*."""
        if not self.shares or (begin == begin[0]).all():
            return True
        return bool(self._on_cables.equal(begin).all())

    @cached_property
    def _on_cables(self) -> Crossings:
        """Which messages cross which link, the two directions of a cable taken as one where that matters."""
        cables = self._capacities.cables
        return self.crossings if cables is None else Crossings.of(cables[self.links], self.no_link)

    def durations_ps(self, nbytes: int | Int64Array) -> Int64Array | None:
        """Return how long each message occupies its links, if those that share links begin together.

        Args:
            nbytes: of every message, or of each, shape (m,).

        Returns:
            Picoseconds, shape (m,); None where the coflow has too little symmetry.

        Raises:
            UnitError: a number beyond 63 bits.
        """
        if not self.shares:
            return self._alone_ps(nbytes)
        key = np.asarray(nbytes).tobytes()
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        sizes = np.full(len(self), nbytes, dtype=np.int64) if isinstance(nbytes, int) else nbytes
        found = self._known[key] = self._shared_ps(sizes)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return found

    def _alone_ps(self, nbytes: int | Int64Array) -> Int64Array:
        """Return the durations of messages that share nothing; most are of one size, and it stays."""
        common = nbytes if isinstance(nbytes, int) else int(nbytes.max(initial=0))
        if self._alone[0] != common:
            self._alone = common, transfer_ps(common, self.narrowest)
        durations = self._alone[1]
        if isinstance(nbytes, int):
            return durations
        others = np.flatnonzero(nbytes != common)
        if others.size:
            durations = durations.copy()
            durations[others] = transfer_ps(nbytes[others], self.narrowest[others])
        return durations

    def alone_ps(self, message: int, nbytes: int) -> int:
        """Return how long *message* occupies its links if it shares none."""
        return transfer_ps(nbytes, int(self.narrowest[message]))

    def _shared_ps(self, sizes: Int64Array) -> Int64Array | None:
        classes = self.classes(sizes)
        if classes is None:
            return None
        of_class = class_durations_ps(classes)
        if max(of_class, default=0) > np.iinfo(np.int64).max:
            raise UnitError("nbytes: the messages of a link are too large together for an array")
        durations: Int64Array = np.array(of_class, dtype=np.int64)[classes.class_of]
        return durations

    def classes(self, sizes: Int64Array) -> Classes | None:
        """Return the classes of messages of these *sizes*, or None if they are too many."""
        distinct, labels = np.unique(sizes, return_inverse=True)
        return self.classes_of(labels, [amount(nbytes) for nbytes in distinct.tolist()])

    def classes_of(self, labels: Int64Array, amounts: Sequence[int]) -> Classes | None:
        """Return the classes of messages of which different *amounts* are left, or None if too many.

        Args:
            labels: which of the amounts is left of each message, shape (m,).
            amounts: as `sim.network.flow.amount` counts.
        """
        return Classes.of(self.links, self.crossings, self._capacities, labels, amounts, MAX_CLASSES)

    def joined(self, other: Coflow) -> Coflow:
        """Return the coflow of these messages and, numbered on, those of *other* on the same network."""
        longest = max(self.links.shape[1], other.links.shape[1])
        return Coflow(
            np.concatenate([self.source, other.source]),
            np.concatenate([self.destination, other.destination]),
            np.concatenate([self.channel, other.channel]),
            np.concatenate([_padded(coflow.links, longest, self.no_link) for coflow in (self, other)]),
            np.concatenate([self.latency_ps, other.latency_ps]),
            self._capacities,
        )


def _padded(links: Int64Array, length: int, no_link: int) -> Int64Array:
    return np.pad(links, ((0, 0), (0, length - links.shape[1])), constant_values=no_link)
