"""Binomial tree: few steps, for messages so small that latency is all that counts.

Ranks count from the root.  Rank v joins the tree at the level of its lowest set bit, below the
rank without that bit; its subtree is a contiguous range of ranks, of which it is the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from collectives.algorithms.shared.rooted_tree import (
    Shape,
    Subtree,
    branches,
    broadcast,
    broadcast_cost,
    depth,
    gather,
    reduce,
    reduce_cost,
    scatter,
    scatter_cost,
)
from collectives.program import Cost, Step, algorithm


def _split_off(part: Subtree, level: int) -> Subtree:
    # The upper half goes: what is longer than 2^level, and nothing where the part is no longer than that.
    half = 1 << level
    length = (part.length > half) * (part.length - half)
    first = part.first + part.length - length
    return Subtree(first, length, head=first)


BINOMIAL = Shape(root=lambda world_size: 0, split_off=_split_off)


def _all_reduce_cost(world_size: int) -> Cost:
    return Cost(2 * depth(world_size), Fraction(depth(world_size)))


def _gather_cost(world_size: int) -> Cost:
    half = 1 << depth(world_size) >> 1
    return Cost(
        depth(world_size), Fraction(max(world_size - half, half // 2), world_size) if half else Fraction(0)
    )


@algorithm(name="tree", collective="broadcast", num_chunks=1, array_form=True, cost=broadcast_cost)
def tree_broadcast(rank: int, world_size: int, *, root: int = 0) -> Iterator[Step]:
    """Yield this rank's steps of a binomial-tree broadcast from *root*.

    In each of ``⌈log2 p⌉`` steps every rank that has the buffer sends it to one that has not.

    Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
    in MPICH", IJHPCA 19(1), 2005.
    """
    yield from broadcast(branches(BINOMIAL, rank, world_size, root))


@algorithm(name="tree", collective="reduce", num_chunks=1, array_form=True, cost=reduce_cost)
def tree_reduce(rank: int, world_size: int, *, root: int = 0) -> Iterator[Step]:
    """Yield this rank's steps of a binomial-tree reduce to *root*: the broadcast, backwards.

    Source: as `tree_broadcast`.
    """
    yield from reduce(branches(BINOMIAL, rank, world_size, root))


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
    yield from gather(branches(BINOMIAL, rank, world_size, root), world_size)


@algorithm(name="tree", collective="scatter", array_form=True, cost=scatter_cost)
def tree_scatter(rank: int, world_size: int, *, root: int = 0) -> Iterator[Step]:
    """Yield this rank's steps of a binomial-tree scatter from *root*: the gather, backwards.

    Source: as `tree_broadcast`.
    """
    yield from scatter(branches(BINOMIAL, rank, world_size, root), world_size)
