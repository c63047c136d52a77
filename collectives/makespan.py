"""All ranks of a collective at once, with NumPy and without events.

Step k of all ranks is one *row* of messages.  A message starts when both its ends have reached
the row, waits for the latency of its route, and occupies the links of the route until its bytes
are through.  As long as no two messages are ever on a link together, that is all there is to
compute, and the result equals that of the event engine to the picosecond.

Assumptions, checked for every row; where one does not hold, `NotExactError` names it and no time
is given: messages match within a row; each link carries one message at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.chunking import Chunking
from collectives.errors import NotExactError
from collectives.program import Algorithm, Copy, Operation, Send, Step
from sim.topology import Topology
from sim.units import transfer_ps

Int64Array = npt.NDArray[np.int64]

MAX_STACKED_MESSAGES = 300_000
"""Messages up to which a program without an array form is built rank by rank and stacked."""


@dataclass(frozen=True, slots=True)
class _Messages:
    """The messages of one row, in one order for all fields."""

    source: Int64Array
    destination: Int64Array
    nbytes: Int64Array


@dataclass(frozen=True, slots=True)
class _Ways:
    """Where the messages of a row go: what depends on their ends alone."""

    source: Int64Array
    destination: Int64Array
    links: Int64Array  # (messages, hops), -1 where a route is shorter
    used: npt.NDArray[np.bool_]
    latency_ps: Int64Array
    bandwidth: Int64Array


class Makespan:
    """Collectives on *topology* in virtual time; links remember until when they are busy."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._busy_until = np.zeros(topology.num_links, dtype=np.int64)
        self._ways: _Ways | None = None
        self._durations: tuple[_Ways, Int64Array, Int64Array] | None = None

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
        for row in _rows(algorithm, num_ranks):
            messages = _match(row, num_ranks, chunking)
            if messages is not None:
                self._advance(ready, messages)
        return ready

    def _advance(self, ready: Int64Array, messages: _Messages) -> None:
        """Let the messages of one row arrive."""
        ways = self._find_ways(messages)
        begin = np.maximum(ready[ways.source], ready[ways.destination]) + ways.latency_ps
        end = begin + self._transfer(ways, messages.nbytes)
        free = np.where(ways.used, self._busy_until[ways.links], 0).max(axis=1)
        if (begin < free).any():
            raise NotExactError("a message meets another one on a link")
        self._busy_until[ways.links[ways.used]] = np.broadcast_to(end[:, None], ways.links.shape)[ways.used]
        np.maximum.at(ready, ways.source, end)
        np.maximum.at(ready, ways.destination, end)

    def _find_ways(self, messages: _Messages) -> _Ways:
        last = self._ways
        if (
            last is not None
            and np.array_equal(last.source, messages.source)
            and np.array_equal(last.destination, messages.destination)
        ):
            return last
        links = self.topology.routes(messages.source, messages.destination)
        used = links >= 0
        occupied = links[used]
        if np.unique(occupied).size != occupied.size:
            raise NotExactError("two messages of a step share a link")
        rates = np.where(used, self.topology.link_bandwidth[links], np.iinfo(np.int64).max)
        latencies = np.where(used, self.topology.link_latency[links], 0)
        self._ways = _Ways(
            messages.source, messages.destination, links, used, latencies.sum(axis=1), rates.min(axis=1)
        )
        return self._ways

    def _transfer(self, ways: _Ways, nbytes: Int64Array) -> Int64Array:
        last = self._durations
        if last is not None and last[0] is ways and np.array_equal(last[1], nbytes):
            return last[2]
        durations = transfer_ps(nbytes, ways.bandwidth)
        self._durations = (ways, nbytes, durations)
        return durations


def _rows(algorithm: Algorithm, num_ranks: int) -> Iterator[Step]:
    """Yield the steps of all ranks as rows of operations over arrays of ranks."""
    if algorithm.array_form:
        yield from algorithm.steps_over_ranks(num_ranks)
        return
    budget = MAX_STACKED_MESSAGES
    for steps in zip_longest(*(algorithm.steps(rank, num_ranks) for rank in range(num_ranks)), fillvalue=()):
        budget -= sum(map(len, steps))
        if budget < 0:
            raise NotExactError(
                f"{algorithm} has no array form and more than {MAX_STACKED_MESSAGES} operations"
            )
        yield tuple(_stack(steps))


def _stack(steps: Iterable[Step]) -> Iterator[Operation]:
    """Yield the n-th operations of all ranks' steps, kind by kind, as operations over arrays."""
    for column in zip_longest(*steps):
        for kind in {type(operation) for operation in column if operation is not None}:
            fields = np.zeros((3, len(column)), dtype=np.int64)
            mask = np.array([type(operation) is kind for operation in column])
            for rank in np.flatnonzero(mask):
                operation = column[rank]
                first = operation.source if isinstance(operation, Copy) else operation.peer
                fields[:, rank] = first, operation.chunk, operation.num_chunks
            arrays: Any = (*fields, mask)
            yield kind(*arrays)


def _match(row: Step, num_ranks: int, chunking: Chunking) -> _Messages | None:
    """Return the messages of *row* that carry bytes, with both sides matched, or None."""
    sends = [_side(operation, num_ranks, chunking) for operation in row if isinstance(operation, Send)]
    receives = [
        _side(operation, num_ranks, chunking) for operation in row if not isinstance(operation, (Send, Copy))
    ]
    here, there, nbytes = _join(sends)
    receiver, sender, taken = _join(receives)
    order, other = np.lexsort((there, here)), np.lexsort((receiver, sender))
    here, there, nbytes = here[order], there[order], nbytes[order]
    if not (
        np.array_equal(here, sender[other])
        and np.array_equal(there, receiver[other])
        and np.array_equal(nbytes, taken[other])
    ):
        raise NotExactError("sends and receives do not match step by step")
    return _Messages(here, there, nbytes) if here.size else None


def _side(operation: Any, num_ranks: int, chunking: Chunking) -> Int64Array:
    """Return (rank, peer, bytes) of an operation, one column for each rank that takes part."""
    shape = (num_ranks,)
    chunk = np.broadcast_to(np.asarray(operation.chunk, dtype=np.int64), shape)
    length = -(-chunking.count // chunking.num_chunks)
    first = np.minimum(chunk * length, chunking.count)
    last = np.minimum((chunk + operation.num_chunks) * length, chunking.count)
    nbytes = (last - first) * chunking.itemsize
    takes_part = np.broadcast_to(np.asarray(operation.when, dtype=bool), shape) & (nbytes > 0)
    ranks = np.flatnonzero(takes_part)
    peers = np.broadcast_to(np.asarray(operation.peer, dtype=np.int64), shape)
    return np.stack([ranks, peers[ranks], nbytes[ranks]])


def _join(sides: list[Int64Array]) -> Int64Array:
    return np.concatenate(sides, axis=1) if sides else np.zeros((3, 0), dtype=np.int64)
