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
import numpy.typing as npt

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
        chunking = Chunking(nbytes // itemsize, algorithm.num_chunks(num_ranks), itemsize)
        ready = start_ps.copy()
        flight: _Flight | None = None
        for row in rows_of(algorithm, num_ranks):
            if flight is None or not flight.pattern.fits(row):
                flight = _Flight(self.topology, Pattern(row, num_ranks))
            sizes = flight.pattern.nbytes(row, chunking)
            if not sizes.any():
                continue
            if sizes.all():
                flight.advance(ready, self._busy_until, sizes)
            else:
                flight.only(sizes > 0).advance(ready, self._busy_until, sizes[sizes > 0])
        return ready


class _Flight:
    """The messages of a pattern on their way: routes, latencies, bandwidths."""

    def __init__(self, topology: Topology, pattern: Pattern) -> None:
        self.topology = topology
        self.pattern = pattern
        self._lay(pattern.source, pattern.destination)

    def only(self, mask: npt.NDArray[np.bool_]) -> _Flight:
        """Return the flight of some of the messages."""
        part = object.__new__(_Flight)
        part.topology, part.pattern = self.topology, self.pattern
        part._lay(self.pattern.source[mask], self.pattern.destination[mask])
        return part

    def _lay(self, source: Int64Array, destination: Int64Array) -> None:
        self.source, self.destination = source, destination
        links = self.topology.routes(source, destination)
        used = links >= 0
        occupied = links[used]
        if np.unique(occupied).size != occupied.size:
            raise NotExactError("two messages of a step share a link; use engine='events'")
        self.links = [np.where(column >= 0, column, self.topology.num_links) for column in links.T]
        self.latency_ps = np.where(used, self.topology.link_latency[links], 0).sum(axis=1)
        unlimited = np.iinfo(np.int64).max
        rates = np.where(used, self.topology.link_bandwidth[links], unlimited)
        self.bandwidth = rates.min(axis=1, initial=unlimited)
        self.ends_once = (
            np.unique(destination).size == destination.size and np.unique(source).size == source.size
        )
        self._sizes = self._durations = np.zeros(0, dtype=np.int64)

    def advance(self, ready: Int64Array, busy_until: Int64Array, sizes: Int64Array) -> None:
        """Let the messages arrive: move *ready* of their ends and *busy_until* of their links."""
        begin = np.maximum(ready[self.source], ready[self.destination]) + self.latency_ps
        if not np.array_equal(sizes, self._sizes):
            self._sizes, self._durations = sizes, transfer_ps(sizes, self.bandwidth)
        end = begin + self._durations
        if begin.min() < 0 or end.min() < 0:
            raise NotExactError("a time beyond 2^63 ps does not fit; use engine='events'")
        for links in self.links:
            if (begin < busy_until[links]).any():
                raise NotExactError("a message meets another one on a link; use engine='events'")
            busy_until[links] = end
            busy_until[-1] = 0
        for rank in (self.source, self.destination):
            if self.ends_once:
                ready[rank] = np.maximum(ready[rank], end)
            else:
                np.maximum.at(ready, rank, end)
