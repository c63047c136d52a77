"""Binomial tree: few steps, for messages so small that latency is all that counts."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from collectives.program import Cost, Recv, RecvReduce, Send, Step, algorithm


def _depth(world_size: int) -> int:
    return (world_size - 1).bit_length()


def _all_reduce_cost(world_size: int) -> Cost:
    return Cost(2 * _depth(world_size), Fraction(_depth(world_size)))


def _broadcast_cost(world_size: int) -> Cost:
    return Cost(_depth(world_size), Fraction(_depth(world_size)))


@algorithm(name="tree", collective="broadcast", num_chunks=1, array_form=True, cost=_broadcast_cost)
def tree_broadcast(rank: int, world_size: int, *, root: int = 0) -> Iterator[Step]:
    """Yield this rank's steps of a binomial-tree broadcast from *root*.

    In each of ``⌈log2 p⌉`` steps every rank that has the buffer sends it to one that has not.
    Ranks count from the root; rank v receives at the step of v's lowest set bit.

    Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
    in MPICH", IJHPCA 19(1), 2005.
    """
    virtual = (rank - root) % world_size
    for level in reversed(range(_depth(world_size))):
        distance = 1 << level
        position = virtual % (2 * distance)
        yield (
            Send(
                (rank + distance) % world_size,
                chunk=0,
                when=(position == 0) & (virtual + distance < world_size),
            ),
            Recv((rank - distance) % world_size, chunk=0, when=position == distance),
        )


@algorithm(num_chunks=1, array_form=True, cost=_all_reduce_cost)
def tree(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's steps of a binomial-tree all-reduce: reduce to rank 0, then broadcast.

    ``2⌈log2 p⌉`` steps, each of the whole buffer.

    Source: as `tree_broadcast`.
    """
    for level in range(_depth(world_size)):
        distance = 1 << level
        position = rank % (2 * distance)
        yield (
            Send((rank - distance) % world_size, chunk=0, when=position == distance),
            RecvReduce(
                (rank + distance) % world_size,
                chunk=0,
                when=(position == 0) & (rank + distance < world_size),
            ),
        )
    yield from tree_broadcast(rank, world_size)
