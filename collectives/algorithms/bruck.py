"""Bruck: each rank talks to one at distance 1, 2, 4 …, for any number of ranks."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from collectives.algorithms.shared.doubling import doublings, halvings, num_doublings
from collectives.program import Copy, Cost, Recv, Send, Step, algorithm


def _all_gather_cost(world_size: int) -> Cost:
    return Cost(num_doublings(world_size), Fraction(world_size - 1, world_size))


def _all_to_all_cost(world_size: int) -> Cost:
    num_hops = sum(distance.bit_count() for distance in range(world_size))
    return Cost(num_doublings(world_size), Fraction(num_hops, world_size))


@algorithm(name="bruck", collective="all_gather", array_form=True, cost=_all_gather_cost)
def bruck_all_gather(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's steps of an all-gather that doubles what it has in each step.

    Before a step at distance d rank r has the parts of ranks r to r+d-1, and receives the d after
    these: ``⌈log2 p⌉`` steps, ``(p-1)/p·n`` bytes.  Every part is received where it belongs, so
    there is no rotation at the end; a range that wraps around travels as two messages of one step.

    Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all
    communications in multiport message-passing systems", IEEE TPDS 8(11), 1997.
    """
    for distance in doublings(world_size):
        length = min(distance, world_size - distance)
        to, source = (rank - distance) % world_size, (rank + distance) % world_size
        before_end, wrapped = _split(rank, length, world_size)
        arriving_before_end, arriving_wrapped = _split(source, length, world_size)
        yield (
            Send(to, rank, before_end),
            Send(to, 0, wrapped, when=wrapped > 0),
            Recv(source, source, arriving_before_end),
            Recv(source, 0, arriving_wrapped, when=arriving_wrapped > 0),
        )


def _split(first: int, length: int, world_size: int) -> tuple[int, int]:
    """Return how much of a range of chunks is before the end of the buffer, and how much wraps."""
    before_end = np.minimum(length, world_size - first)
    return before_end, length - before_end


@algorithm(name="bruck", collective="all_to_all", array_form=True, cost=_all_to_all_cost)
def bruck_all_to_all(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's steps of an all-to-all that sends ``⌈log2 p⌉`` messages.

    A part for the rank at distance d goes there by the powers of two of which d is the sum.  Per
    step a rank packs the parts that go that far into one message, about ``n/2`` bytes: fewer
    messages than any direct exchange, for ``(log2 p)/2`` times its bytes.

    Parts are ordered by distance at first (a rotation), and by the rank that they come from in
    the end; in between, those that travel next are at the end of the buffer.

    Source: as `bruck_all_gather`.
    """
    yield (
        Copy(rank, 0, world_size - rank),
        Copy(0, world_size - rank, rank, when=rank > 0),
    )
    for distance in halvings(world_size):
        yield tuple(
            Copy(before, after, min(distance, world_size - first), when=before != after)
            for first, before, after in _moves(distance, world_size)
        )
        staying = _num_staying(distance, world_size)
        yield (
            Send((rank + distance) % world_size, staying, world_size - staying),
            Recv((rank - distance) % world_size, staying, world_size - staying),
        )
    yield tuple(
        Copy(_place(distance, 1, world_size), (rank - distance) % world_size)
        for distance in range(world_size)
    )


def _moves(distance: int, world_size: int) -> Iterator[tuple[int, int, int]]:
    """Yield the first of each block of as many parts, where it is, and where it goes to travel this far."""
    for first in range(0, world_size, distance):
        yield first, _place(first, 2 * distance, world_size), _place(first, distance, world_size)


def _place(part: int, distance: int, world_size: int) -> int:
    """Return where a part is while those that travel over *distance* are at the end of the buffer."""
    pair, block = part & -(2 * distance), part & -distance
    return pair // 2 + part - block + _num_staying(distance, world_size) * (pair != block)


def _num_staying(distance: int, world_size: int) -> int:
    """Return how many parts do not travel over *distance*."""
    pair = world_size & -(2 * distance)
    return pair // 2 + min(distance, world_size - pair)
