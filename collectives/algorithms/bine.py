"""Bine: trees and butterflies with the steps of binomial ones, but partners that are a third closer.

A binomial tree reaches half-way across the ranks, always in one direction.  A bine tree reaches to both
sides in turn: a third of the way, then a sixth back.  Its name is from *binomial negabinary*: written to
the base -2, the number of a child is that of its parent with the lowest digits, which are equal, flipped.

That pays where nodes or groups of a network hold any consecutive ranks.  Where each holds a power of
two and the root is the first of its own, binomial partners never leave one without need, and ``tree``
and ``recursive_doubling`` cross less often.

For large buffers the paper reduce-scatters and all-gathers along pairs at the same distances, which is
``swing``; here are the trees, and the butterfly for small buffers.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial

from collectives.algorithms.recursive_doubling import exchange_all, exchange_all_cost
from collectives.algorithms.shared.doubling import num_doublings
from collectives.algorithms.shared.power_of_two import folded
from collectives.algorithms.shared.rooted_tree import (
    Shape,
    Subtree,
    branches,
    broadcast,
    broadcast_cost,
    choose,
    gather,
    reduce,
    reduce_cost,
    scatter,
    scatter_cost,
)
from collectives.algorithms.swing import swing_peer
from collectives.program import Cost, Step, algorithm


def _root(world_size: int) -> int:
    offset = (world_size - 1) // 3
    return offset if num_doublings(world_size) % 2 else world_size - 1 - offset


def _split_off(part: Subtree, level: int) -> Subtree:
    """Split off the half in which the head is not; its head is a third of the way into it."""
    length = part.length // 2
    above = 2 * (part.head - part.first) < part.length
    first = part.first + above * (part.length - length)
    offset = (length - 1) // 3
    return Subtree(first, length, head=first + choose(above, offset, length - 1 - offset))


BINE = Shape(root=_root, split_off=_split_off)


def _gather_cost(world_size: int) -> Cost:
    return Cost(num_doublings(world_size), Fraction(world_size // 2, world_size))


@algorithm(name="bine", collective="broadcast", num_chunks=1, array_form=True, cost=broadcast_cost)
def bine_broadcast(rank: int, world_size: int, *, root: int = 0) -> Iterator[Step]:
    """Yield this rank's steps of a broadcast from *root* along a bine tree.

    ``⌈log2 p⌉`` steps of the whole buffer, as along a binomial tree.  The ranks are halved again and
    again, each half with a head a third of the way in, which hands on to the head of the other half;
    so, of ``2^k`` ranks, messages of the last step but s go ``|ρ(s)|`` far, ``(1 - (-2)^(s+1)) / 3``,
    and not ``2^s``.

    Source: De Sensi et al., "Bine trees: enhancing collective operations by optimizing communication
    locality", SC 2025, for powers of two; the halves of other world sizes are our own.
    """
    yield from broadcast(branches(BINE, rank, world_size, root))


@algorithm(name="bine", collective="reduce", num_chunks=1, array_form=True, cost=reduce_cost)
def bine_reduce(rank: int, world_size: int, *, root: int = 0) -> Iterator[Step]:
    """Yield this rank's steps of a reduce to *root* along a bine tree: the broadcast, backwards.

    Source: as `bine_broadcast`.
    """
    yield from reduce(reversed(branches(BINE, rank, world_size, root)))


@algorithm(name="bine", collective="gather", array_form=True, cost=_gather_cost)
def bine_gather(rank: int, world_size: int, *, root: int = 0) -> Iterator[Step]:
    """Yield this rank's steps of a gather to *root* along a bine tree.

    Each of ``⌈log2 p⌉`` steps hands on the parts of a whole subtree, a range of ranks.

    Source: as `bine_broadcast`.
    """
    yield from gather(reversed(branches(BINE, rank, world_size, root)), world_size)


@algorithm(name="bine", collective="scatter", array_form=True, cost=scatter_cost)
def bine_scatter(rank: int, world_size: int, *, root: int = 0) -> Iterator[Step]:
    """Yield this rank's steps of a scatter from *root* along a bine tree: the gather, backwards.

    Source: as `bine_broadcast`.
    """
    yield from scatter(branches(BINE, rank, world_size, root), world_size)


@algorithm(num_chunks=1, array_form=True, cost=exchange_all_cost)
def bine(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's steps of an all-reduce of small buffers along a bine butterfly.

    Recursive doubling with the partners of ``swing``: ``log2 p`` steps, in which pairs at distance
    ``|ρ(s)|`` exchange and reduce their whole buffers.  Where p is no power of two, ``p - 2^k`` ranks
    fold theirs into their neighbours'.  For large buffers the paper's all-reduce is ``swing``.

    Source: as `bine_broadcast`; Swing's latency-optimal variant, from De Sensi et al., "Swing:
    short-cutting rings for higher bandwidth allreduce", NSDI 2024, is the same.
    """
    yield from folded(partial(exchange_all, peer_in_step=swing_peer), rank, world_size, num_chunks=1)
