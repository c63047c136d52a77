"""Naive, the reference: everything goes to rank 0 and comes back, one rank after another."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from collectives.program import Cost, Recv, RecvReduce, Send, Step, algorithm


def _cost(world_size: int) -> Cost:
    return Cost(2 * (world_size - 1), Fraction(world_size - 1))


@algorithm(num_chunks=1, array_form=True, cost=_cost)
def naive(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's steps of the all-reduce that a newcomer writes first.

    Rank 0 receives and reduces the whole buffer of every other rank in turn, then sends the
    result to each in turn: ``2(p-1)`` steps, and ``p-1`` buffers sent by rank 0.  Every other
    algorithm is measured against this one.
    """
    for other in range(1, world_size):
        yield (
            Send(0, chunk=0, when=rank == other),
            RecvReduce(other, chunk=0, when=rank == 0),
        )
    for other in range(1, world_size):
        yield (
            Send(other, chunk=0, when=rank == 0),
            Recv(0, chunk=0, when=rank == other),
        )
