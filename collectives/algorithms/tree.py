"""Binomial tree: few steps, for messages so small that latency is all that counts.

Ranks count from the root.  Rank v joins the tree at the level of its lowest set bit, below the
rank without that bit; its subtree is a contiguous range of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from collectives.program import Cost, Recv, RecvReduce, Send, Step, algorithm


def _depth(world_size: int) -> int:
    return (world_size - 1).bit_length()


def _all_reduce_cost(world_size: int) -> Cost:
    return Cost(2 * _depth(world_size), Fraction(_depth(world_size)))


def _broadcast_cost(world_size: int) -> Cost:
    return Cost(_depth(world_size), Fraction(_depth(world_size)))


def _reduce_cost(world_size: int) -> Cost:
    return Cost(_depth(world_size), Fraction(min(world_size - 1, 1)))


def _gather_cost(world_size: int) -> Cost:
    half = 1 << _depth(world_size) >> 1
    return Cost(
        _depth(world_size), Fraction(max(world_size - half, half // 2), world_size) if half else Fraction(0)
    )


def _scatter_cost(world_size: int) -> Cost:
    return Cost(_depth(world_size), Fraction(world_size - 1, world_size))


@algorithm(name="tree", collective="broadcast", num_chunks=1, array_form=True, cost=_broadcast_cost)
def tree_broadcast(rank: int, world_size: int, *, root: int = 0) -> Iterator[Step]:
    """Yield this rank's steps of a binomial-tree broadcast from *root*.

    In each of ``⌈log2 p⌉`` steps every rank that has the buffer sends it to one that has not.

    Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
    in MPICH", IJHPCA 19(1), 2005.
    """
    virtual = (rank - root) % world_size
    for level in reversed(range(_depth(world_size))):
        distance = 1 << level
        position = virtual % (2 * distance)
        has_child = (position == 0) & (virtual + distance < world_size)
        yield (
            Send((rank + distance) % world_size, chunk=0, when=has_child),
            Recv((rank - distance) % world_size, chunk=0, when=position == distance),
        )


@algorithm(name="tree", collective="reduce", num_chunks=1, array_form=True, cost=_reduce_cost)
def tree_reduce(rank: int, world_size: int, *, root: int = 0) -> Iterator[Step]:
    """Yield this rank's steps of a binomial-tree reduce to *root*: the broadcast, backwards.

    Source: as `tree_broadcast`.
    """
    virtual = (rank - root) % world_size
    for level in range(_depth(world_size)):
        distance = 1 << level
        position = virtual % (2 * distance)
        has_child = (position == 0) & (virtual + distance < world_size)
        yield (
            Send((rank - distance) % world_size, chunk=0, when=position == distance),
            RecvReduce((rank + distance) % world_size, chunk=0, when=has_child),
        )


@algorithm(num_chunks=1, array_form=True, cost=_all_reduce_cost)
def tree(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's steps of a binomial-tree all-reduce: reduce to rank 0, then broadcast.

    ``2⌈log2 p⌉`` steps, each of the whole buffer.

    Source: as `tree_broadcast`.
    """
    yield from tree_reduce(rank, world_size)
    yield from tree_broadcast(rank, world_size)


@algorithm(name="tree", collective="gather", array_form=True, cost=_gather_cost)
def tree_gather(rank: int, world_size: int, *, root: int = 0) -> Iterator[Step]:
    """Yield this rank's steps of a binomial-tree gather to *root*.

    Each of ``⌈log2 p⌉`` steps hands on the parts of a whole subtree.

    Source: as `tree_broadcast`.
    """
    virtual = (rank - root) % world_size
    for level in range(_depth(world_size)):
        distance = 1 << level
        position = virtual % (2 * distance)
        child = (rank + distance) % world_size
        has_child = (position == 0) & (virtual + distance < world_size)
        yield (
            *_parts(
                Send,
                (rank - distance) % world_size,
                rank,
                virtual,
                distance,
                world_size,
                position == distance,
            ),
            *_parts(Recv, child, child, virtual + distance, distance, world_size, has_child),
        )


@algorithm(name="tree", collective="scatter", array_form=True, cost=_scatter_cost)
def tree_scatter(rank: int, world_size: int, *, root: int = 0) -> Iterator[Step]:
    """Yield this rank's steps of a binomial-tree scatter from *root*: the gather, backwards.

    Source: as `tree_broadcast`.
    """
    virtual = (rank - root) % world_size
    for level in reversed(range(_depth(world_size))):
        distance = 1 << level
        position = virtual % (2 * distance)
        child = (rank + distance) % world_size
        has_child = (position == 0) & (virtual + distance < world_size)
        yield (
            *_parts(Send, child, child, virtual + distance, distance, world_size, has_child),
            *_parts(
                Recv,
                (rank - distance) % world_size,
                rank,
                virtual,
                distance,
                world_size,
                position == distance,
            ),
        )


def _parts(
    kind: Any, peer: int, first: int, virtual: int, distance: int, world_size: int, when: bool
) -> Step:
    """Return the operations on the parts of a subtree, which may wrap round the end of the buffer.

    The subtree is that of rank *first*, *virtual* as counted from the root.
    """
    length: Any = np.minimum(distance, world_size - virtual)
    up_to_end: Any = np.minimum(length, world_size - first)
    return (
        kind(peer, first, up_to_end, when),
        kind(peer, 0, length - up_to_end, when & (length > up_to_end)),
    )
