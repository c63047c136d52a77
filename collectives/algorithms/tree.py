"""Binomial tree: few steps, for messages so small that latency is all that counts.

Ranks count from the root.  Rank v joins the tree at the level of its lowest set bit, below the
rank without that bit; its subtree is a contiguous range of ranks, of which it is the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

import numpy as np

from collectives.algorithms.shared.doubling import doublings, halvings, num_doublings
from collectives.algorithms.shared.rooted_tree import (
    Branch,
    broadcast,
    broadcast_cost,
    gather,
    reduce,
    reduce_cost,
    scatter,
    scatter_cost,
)
from collectives.program import Cost, Step, algorithm


def _branches(distances: Iterable[int], rank: int, world_size: int, root: int) -> Iterator[Branch]:
    """Yield the level of the tree at which parent and child are as far apart as each of *distances*."""
    position = (rank - root) % world_size
    for distance in distances:
        parent = position & -(2 * distance)
        child = parent + distance
        yield Branch(
            parent=(parent + root) % world_size,
            child=(child + root) % world_size,
            is_parent=(position == parent) & (child < world_size),
            is_child=position == child,
            first=(child + root) % world_size,
            length=np.minimum(distance, world_size - child),
        )


def _all_reduce_cost(world_size: int) -> Cost:
    return Cost(2 * num_doublings(world_size), Fraction(num_doublings(world_size)))


def _gather_cost(world_size: int) -> Cost:
    half = 1 << num_doublings(world_size) >> 1
    return Cost(
        num_doublings(world_size),
        Fraction(max(world_size - half, half // 2), world_size) if half else Fraction(0),
    )


@algorithm(name="tree", collective="broadcast", num_chunks=1, array_form=True, cost=broadcast_cost)
def tree_broadcast(rank: int, world_size: int, *, root: int = 0) -> Iterator[Step]:
    """Yield this rank's steps of a binomial-tree broadcast from *root*.

    In each of ``⌈log2 p⌉`` steps every rank that has the buffer sends it to one that has not.

    Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
    in MPICH", IJHPCA 19(1), 2005.
    """
    yield from broadcast(_branches(halvings(world_size), rank, world_size, root))


@algorithm(name="tree", collective="reduce", num_chunks=1, array_form=True, cost=reduce_cost)
def tree_reduce(rank: int, world_size: int, *, root: int = 0) -> Iterator[Step]:
    """Yield this rank's steps of a binomial-tree reduce to *root*: the broadcast, backwards.

    Source: as `tree_broadcast`.
    """
    yield from reduce(_branches(doublings(world_size), rank, world_size, root))


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
    yield from gather(_branches(doublings(world_size), rank, world_size, root), world_size)


@algorithm(name="tree", collective="scatter", array_form=True, cost=scatter_cost)
def tree_scatter(rank: int, world_size: int, *, root: int = 0) -> Iterator[Step]:
    """Yield this rank's steps of a binomial-tree scatter from *root*: the gather, backwards.

    Source: as `tree_broadcast`.
    """
    yield from scatter(_branches(halvings(world_size), rank, world_size, root), world_size)
