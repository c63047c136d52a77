"""Halving and doubling: reduce ever smaller halves, then gather them; few steps and few bytes."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Literal, TypeAlias, get_args

from collectives.algorithms.shared.doubling import doublings, halvings
from collectives.algorithms.shared.power_of_two import (
    Fold,
    floor_log2,
    folded,
    folded_all_gather,
    folded_reduce_scatter,
    is_power_of_two,
    require_power_of_two,
)
from collectives.program import Copy, Cost, Recv, RecvReduce, Send, Step, algorithm

Order: TypeAlias = Literal["far", "near"]
ORDERS = {"order": get_args(Order)}


def _core(world_size: int) -> int:
    return 1 << floor_log2(world_size)


def _all_reduce_cost(world_size: int) -> Cost:
    core, folds = _core(world_size), not is_power_of_two(world_size)
    return Cost(2 * floor_log2(world_size) + 2 * folds, Fraction(2 * (core - 1), core) + folds)


def _reduce_scatter_cost(world_size: int) -> Cost:
    folds = not is_power_of_two(world_size)
    return Cost(floor_log2(world_size) + 2 * folds, Fraction(world_size - 1 + folds, world_size))


def all_gather_cost(world_size: int) -> Cost:
    """Return what it costs to double what each rank has, and leaves' parts through their hosts."""
    fold = Fold.of(0, world_size)
    doublings, folds = floor_log2(world_size), not is_power_of_two(world_size)
    sent_by_rank_1 = sum(int(fold.first_chunk(1 << level)) for level in range(doublings)) + folds * world_size
    return Cost(doublings + 2 * folds, Fraction(sent_by_rank_1, world_size))


@algorithm(num_chunks=_core, array_form=True, cost=_all_reduce_cost, ranges=ORDERS)
def halving_doubling(rank: int, world_size: int, *, order: Order = "far") -> Iterator[Step]:
    """Yield this rank's steps of Rabenseifner's all-reduce.

    Recursive halving: partners exchange halves of what they still reduce, until each has one
    chunk.  Recursive doubling takes the same way back.  ``2 log2 p`` steps, and ``2(p-1)/p``
    buffers sent, the fewest bytes that there can be.  Where p is no power of two, ``p - 2^k`` ranks
    fold their buffers into their neighbours': two steps and one buffer more.

    *order*: with the farthest partner first (``far``), the largest messages travel farthest; with
    the nearest first (``near``, as in MPICH), they stay close, which relieves a ring or torus.

    Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
    in MPICH", IJHPCA 19(1), 2005, on reduce and all-reduce.
    """
    yield from folded(partial(_halve_and_double, order=order), rank, world_size, _core(world_size))


@algorithm(
    name="halving_doubling",
    collective="reduce_scatter",
    array_form=True,
    cost=_reduce_scatter_cost,
    ranges=ORDERS,
)
def halving_doubling_reduce_scatter(rank: int, world_size: int, *, order: Order = "far") -> Iterator[Step]:
    """Yield this rank's steps of a recursive-halving reduce-scatter.

    ``log2 p`` steps, the fewest with one message each, and ``(p-1)/p`` of the buffer sent, the
    fewest bytes that there can be.  Where p is no power of two, ``p - 2^k`` ranks fold their buffer
    into their neighbour's, and get their chunk from it: two steps more, and one buffer sent by them.
    With ``order="near"`` the halves are contiguous only after the chunks have been put into
    bit-reversed order, so each rank copies its buffer once before, and its own chunk after.

    Source: as `halving_doubling`; the folding is that of its all-reduce.

    Raises:
        NotSupportedError: *order* is ``near`` and *world_size* no power of two.
    """
    if order == "far":
        yield from folded_reduce_scatter(partial(_halve, order=order), rank, world_size)
        return
    require_power_of_two(world_size, "halving_doubling:order=near of reduce_scatter", "order=far or ring")
    yield _reverse_bits_of_chunks(world_size)
    yield from _halve(rank, world_size, order)
    yield (Copy(_position(rank, world_size, order), rank),)


@algorithm(
    name="halving_doubling", collective="all_gather", array_form=True, cost=all_gather_cost, ranges=ORDERS
)
def halving_doubling_all_gather(rank: int, world_size: int, *, order: Order = "far") -> Iterator[Step]:
    """Yield this rank's steps of a recursive-doubling all-gather.

    `halving_doubling_reduce_scatter` backwards: *order* is that of the halving, so ``far`` begins
    with the nearest partner, which is ``recursive_doubling``.

    Source: as `halving_doubling`; the folding is that of its all-reduce.

    Raises:
        NotSupportedError: *order* is ``near`` and *world_size* no power of two.
    """
    if order == "far":
        yield from folded_all_gather(partial(double, order="far"), rank, world_size)
        return
    require_power_of_two(world_size, "halving_doubling:order=near of all_gather", "order=far or ring")
    yield (Copy(rank, _position(rank, world_size, order)),)
    yield from double(rank, world_size, order)
    yield _reverse_bits_of_chunks(world_size)


def _halve_and_double(rank: int, world_size: int, order: Order) -> Iterator[Step]:
    yield from _halve(rank, world_size, order)
    yield from double(rank, world_size, order)


def _halve(rank: int, world_size: int, order: Order) -> Iterator[Step]:
    position = _position(rank, world_size, order)
    for length in halvings(world_size):
        peer = rank ^ _distance(length, world_size, order)
        kept = position & -length
        yield Send(peer, kept ^ length, num_chunks=length), RecvReduce(peer, kept, num_chunks=length)


def double(rank: int, world_size: int, order: Order) -> Iterator[Step]:
    """Yield the steps of a rank that exchanges all chunks that it has, twice as many each time."""
    position = _position(rank, world_size, order)
    for length in doublings(world_size):
        peer = rank ^ _distance(length, world_size, order)
        own = position & -length
        yield Send(peer, own, num_chunks=length), Recv(peer, own ^ length, num_chunks=length)


def _distance(length: int, world_size: int, order: Order) -> int:
    """Return how far away the partner is with whom *length* chunks are exchanged."""
    if order not in ("far", "near"):
        raise ValueError(f"order must be 'far' or 'near', got {order!r}")
    return length if order == "far" else world_size // 2 // length


def _position(rank: int, world_size: int, order: Order) -> int:
    """Return where the chunk is that *rank* reduces: at *rank*, or (near) at its bits reversed."""
    return rank if order == "far" else _with_bits_reversed(rank, world_size)


def _with_bits_reversed(rank: int, world_size: int) -> int:
    position = 0 * rank
    for distance in doublings(world_size):
        position = 2 * position + rank // distance % 2
    return position


def _reverse_bits_of_chunks(world_size: int) -> Step:
    return tuple(Copy(_with_bits_reversed(chunk, world_size), chunk) for chunk in range(world_size))
