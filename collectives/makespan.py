"""All ranks of a collective at once, with NumPy and without events.

Step k of all ranks is one *row* of messages (`collectives.rows`).  A message starts when both its
ends have reached the row, waits for the latency of its route, and occupies the links of the route
until its bytes are through.  As long as no two messages are ever on a link together, that is all
there is to compute, and the result equals that of the event engine to the picosecond.

Assumptions, checked for every row; where one does not hold, `NotExactError` names it and no time
is given: messages match within a row; each link carries one message at a time.
"""

from __future__ import annotations

import numpy as np

from collectives.chunking import Chunking
from collectives.errors import NotExactError
from collectives.program import Algorithm
from collectives.rows import Int64Array, Pattern, rows_of
from sim.topology import Topology
from sim.units import transfer_ps


class Makespan:
    """Collectives on *topology* in virtual time; links remember until when they are busy."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._busy_until = np.zeros(topology.num_links + 1, dtype=np.int64)  # the last stands for no link

    def run(self, algorithm: Algorithm, nbytes: int, start_ps: Int64Array, itemsize: int = 1) -> Int64Array:
        """Return when each rank is done, in picoseconds.

        Args:
            algorithm: the program of every rank.
            nbytes: size of the buffer, a multiple of *itemsize*.
            start_ps: when each rank starts, shape (num_ranks,).
            itemsize: bytes of an element.

        Raises:
            NotExactError: messages share a link, or do not match row by row.
        """
        num_ranks = self.topology.num_ranks
        chunking = Chunking.of(algorithm, num_ranks, nbytes // itemsize, itemsize)
        ready = start_ps.copy()
        pattern: Pattern | None = None
        for row in rows_of(algorithm, num_ranks):
            if pattern is None or not pattern.fits(row):
                pattern = Pattern(row, num_ranks)
                flight = _Flight(self.topology, pattern.source, pattern.destination)
            sizes = pattern.nbytes(row, chunking)
            moving = sizes > 0
            if not moving.any():
                continue
            if moving.all():
                flight.advance(ready, self._busy_until, sizes)
            else:
                part = _Flight(self.topology, pattern.source[moving], pattern.destination[moving])
                part.advance(ready, self._busy_until, sizes[moving])
        return ready


class _Flight:
    """The messages of a row on their way: routes, latencies, bandwidths, durations."""

    def __init__(self, topology: Topology, source: Int64Array, destination: Int64Array) -> None:
        links = topology.routes(source, destination)
        used = links >= 0
        occupied = links[used]
        if np.unique(occupied).size != occupied.size:
            raise NotExactError("two messages of a step share a link; use engine='events'")
        unlimited = np.iinfo(np.int64).max
        rates = np.where(used, topology.link_bandwidth[links], unlimited)
        self.source, self.destination = source, destination
        self.links = [np.where(column >= 0, column, topology.num_links) for column in links.T]
        self.latency_ps = np.where(used, topology.link_latency[links], 0).sum(axis=1)
        self.bandwidth = rates.min(axis=1, initial=unlimited)
        self.ends_once = _is_unique(source) and _is_unique(destination)
        self.sizes = np.zeros_like(source)
        self.durations_ps = np.zeros_like(source)

    def advance(self, ready: Int64Array, busy_until: Int64Array, sizes: Int64Array) -> None:
        """Let the messages arrive: move *ready* of their ends and *busy_until* of their links."""
        changed = np.flatnonzero(sizes != self.sizes)  # few: most chunks are of one size
        if changed.size:
            self.durations_ps[changed] = transfer_ps(sizes[changed], self.bandwidth[changed])
            self.sizes = sizes
        begin = np.maximum(ready[self.source], ready[self.destination]) + self.latency_ps
        end = begin + self.durations_ps
        if begin.min() < 0 or end.min() < 0:
            raise NotExactError("a time beyond 2^63 ps does not fit; use engine='events'")
        for links in self.links:
            if (begin < busy_until[links]).any():
                raise NotExactError("a message meets another one on a link; use engine='events'")
            busy_until[links] = end
            busy_until[-1] = 0
        if self.ends_once:
            ready[self.source] = end  # no earlier than before, as a message waits for both its ends
            ready[self.destination] = np.maximum(ready[self.destination], end)
        else:
            np.maximum.at(ready, self.source, end)
            np.maximum.at(ready, self.destination, end)


def _is_unique(ranks: Int64Array) -> bool:
    return bool(np.unique(ranks).size == ranks.size)
