"""Ring: each rank talks to its two neighbours only, and every link is busy all the time."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from collectives.program import Cost, Recv, RecvReduce, Send, Step, algorithm


def _all_reduce_cost(world_size: int) -> Cost:
    return Cost(2 * (world_size - 1), Fraction(2 * (world_size - 1), world_size))


def _half_cost(world_size: int) -> Cost:
    return Cost(world_size - 1, Fraction(world_size - 1, world_size))


@algorithm(name="ring", collective="reduce_scatter", array_form=True, cost=_half_cost)
def ring_reduce_scatter(rank: int, world_size: int, *, shift: int = 0) -> Iterator[Step]:
    """Yield this rank's steps of a ring reduce-scatter.

    A chunk travels once round the ring and collects every rank's contribution: ``p-1`` steps of
    ``n/p`` bytes.  Rank r ends with chunk ``r + shift`` reduced.

    Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
    workstations", JPDC 69(2), 2009.
    """
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    for step in range(world_size - 1):
        chunk = (rank + shift - 1 - step) % world_size
        yield Send(right, chunk), RecvReduce(left, (chunk - 1) % world_size)


@algorithm(name="ring", collective="all_gather", array_form=True, cost=_half_cost)
def ring_all_gather(rank: int, world_size: int, *, shift: int = 0) -> Iterator[Step]:
    """Yield this rank's steps of a ring all-gather.

    Rank r starts with chunk ``r + shift``; each chunk travels once round the ring: ``p-1``
    steps of ``n/p`` bytes.

    Source: as `ring_reduce_scatter`.
    """
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    for step in range(world_size - 1):
        chunk = (rank + shift - step) % world_size
        yield Send(right, chunk), Recv(left, (chunk - 1) % world_size)


@algorithm(array_form=True, cost=_all_reduce_cost)
def ring(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's steps of a ring all-reduce over *world_size* chunks.

    Every rank sends ``2(p-1)`` chunks of ``n/p`` bytes, which no algorithm can beat in
    bandwidth; it pays for that with ``2(p-1)`` steps of latency.

    Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
    workstations", JPDC 69(2), 2009.
    """
    yield from ring_reduce_scatter(rank, world_size, shift=1)
    yield from ring_all_gather(rank, world_size, shift=1)
