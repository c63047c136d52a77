"""Swing: halving and doubling whose partners stay near, by swinging to and fro on a ring.

All three collectives number chunks so that what travels together is together in the buffer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from collectives.algorithms.shared.butterfly import Butterfly, backwards, follow
from collectives.algorithms.shared.power_of_two import is_power_of_two
from collectives.algorithms.shared.torus import parse_sides
from collectives.errors import NotSupportedError
from collectives.program import Copy, Cost, Operation, RecvReduce, Send, Step, algorithm

Sides: TypeAlias = tuple[int, ...]


def _half_cost(world_size: int, *, shape: str) -> Cost:
    num_steps = sum(map(_num_steps, _sides(world_size, shape)))
    return Cost(num_steps, Fraction(world_size - 1, world_size))


def _all_reduce_cost(world_size: int, *, shape: str) -> Cost:
    half = _half_cost(world_size, shape=shape)
    return Cost(2 * half.num_steps, 2 * half.max_bytes_sent_fraction)


@algorithm(array_form=True, cost=_all_reduce_cost)
def swing(rank: int, world_size: int, *, shape: str = "") -> Iterator[Step]:
    """Yield this rank's steps of the bandwidth-optimal Swing all-reduce.

    In step s even ranks pair with rank ``r + ρ(s)`` and odd ones with ``r - ρ(s)``, where
    ``ρ(s) = (1 - (-2)^(s+1)) / 3``, and each pair halves what it has still to reduce; then the
    same pairs, in reverse order, double what they have.  ``2 ⌈log2 p⌉`` steps and ``2(p-1)/p``
    buffers sent, as halving and doubling, but partners are a third closer on a ring or torus.

    If p is even but no power of two, the halves are uneven, and may travel as several messages of
    one step.  If p is odd, the last rank exchanges its part of the buffer with all others directly,
    one part with each; the others pair up, in ``2 ⌈log2(p-1)⌉`` steps.  The bytes stay the fewest
    that there can be.

    On a torus the dimensions take turns: each step swings along the next one.  The paper also divides the
    buffer, to use all links at once; here it stays whole.

    Args:
        rank: consecutive ranks lie along the ring, or the first dimension of the torus.
        world_size: any number; on a torus the product of the sides, which must be even.
        shape: the sides of a torus, such as ``4x4`` or ``2x4x8``; by default a ring.

    Source: De Sensi et al., "Swing: short-cutting rings for higher bandwidth allreduce", NSDI 2024; which
    chunks travel when, if p is no power of two, is worked out here (`butterfly.follow`).

    Raises:
        NotSupportedError: the sides do not make up *world_size*, or one of several is odd.
    """
    halvings = list(_halvings(rank, _sides(world_size, shape)))
    yield from halvings
    yield from backwards(halvings)


@algorithm(name="swing", collective="reduce_scatter", array_form=True, cost=_half_cost)
def swing_reduce_scatter(rank: int, world_size: int, *, shape: str = "") -> Iterator[Step]:
    """Yield this rank's steps of a reduce-scatter: the first half of the Swing all-reduce.

    ``⌈log2 p⌉`` steps, ``⌈log2(p-1)⌉`` for odd p, and ``(p-1)/p`` of the buffer sent, the fewest bytes
    that there can be.  Each rank puts its chunks into the order of the all-reduce before, and its own
    into its place after.

    Args:
        rank: as for `swing`.
        world_size: as for `swing`.
        shape: the sides of a torus; by default a ring.

    Source: as `swing`.
    """
    sides = _sides(world_size, shape)
    yield _reorder(sides)
    yield from _halvings(rank, sides)
    yield (Copy(_position(rank, sides), rank),)


@algorithm(name="swing", collective="all_gather", array_form=True, cost=_half_cost)
def swing_all_gather(rank: int, world_size: int, *, shape: str = "") -> Iterator[Step]:
    """Yield this rank's steps of an all-gather: the second half of the Swing all-reduce.

    `swing_reduce_scatter` backwards, at the same cost.

    Args:
        rank: as for `swing`.
        world_size: as for `swing`.
        shape: the sides of a torus; by default a ring.

    Source: as `swing`.
    """
    sides = _sides(world_size, shape)
    yield (Copy(rank, _position(rank, sides)),)
    yield from backwards(_halvings(rank, sides))
    yield tuple(Copy(copy.chunk, copy.source) for copy in _reorder(sides))


def swing_peer(rank: int, step: int, world_size: int) -> int:
    """Return with whom *rank* pairs in a step, at distance 1, -1, 3, -5, 11 and so on if it is even.

    Distances count modulo *world_size*, which must be even.
    """
    power: int = (-2) ** (step + 1)
    return (rank + (1 - 2 * (rank % 2)) * (1 - power) // 3) % world_size


def _sides(world_size: int, shape: str) -> Sides:
    """Return the sides along which ranks swing: on a ring, its length."""
    if not shape:
        return (world_size,)
    sides = parse_sides(shape, world_size, default="a ring", what="swing")
    long = tuple(side for side in sides if side > 1)
    if len(long) < 2:
        return (world_size,)
    if any(side % 2 for side in long):
        raise NotSupportedError(
            f"swing: shape {shape!r} has an odd side, along which ranks do not pair up; "
            "use no shape, or bucket, which takes any"
        )
    return long


def _num_steps(side: int) -> int:
    """Return the steps along a ring of *side* ranks, of which, if odd, the last stands apart."""
    pairing = max(side - side % 2, 1)
    return (pairing - 1).bit_length()


def _halvings(rank: int, sides: Sides) -> Iterator[Step]:
    """Yield the steps of a reduce-scatter that leaves the chunk at its position to each rank."""
    world_size = math.prod(sides)
    if _is_arithmetic(sides):
        # Before step s a rank has still to reduce a range of p/2^s chunks, which holds its own position.
        # It keeps the half in which that is, and sends the other half, whose first chunk differs in one
        # bit only, as ranges begin at multiples of their length.
        position = _position(rank, sides)
        for step in range(_num_steps(world_size)):
            width = world_size >> step + 1
            kept = position // width * width
            peer = swing_peer(rank, step, world_size)
            yield Send(peer, kept ^ width, width), RecvReduce(peer, kept, width)
    elif world_size % 2 == 0:
        yield from _butterfly(sides).reduce_scatter(rank)
    else:
        yield from _with_the_last_apart(rank, world_size - 1)


def _is_arithmetic(sides: Sides) -> bool:
    """Return whether there is no need of tables, which grow as the square of the number of ranks."""
    return len(sides) == 1 and is_power_of_two(sides[0])


def _position(rank: int, sides: Sides) -> int:
    """Return the chunk that *rank* reduces.

    On a ring of a power of two: even ranks that share a half before step s agree modulo ``2^(s+1)``, and
    an odd rank goes with the even one that it meets last, so step s divides by bit ``s+1`` of that even
    rank, and the last step by parity.
    """
    world_size = math.prod(sides)
    if not _is_arithmetic(sides):
        apart = world_size % 2
        table = _butterfly((world_size - 1,) if apart else sides).position
        position: int = np.append(table, world_size - 1)[rank]
        return position

    # Read from the first step to the last, the bits that divide the ranks are the position's, from the
    # highest to the lowest: bits 1, 2, … of the even rank, and parity for the last.  Halving the even
    # rank and setting an odd rank's top bit puts them all in one number, lowest first.
    num_steps = _num_steps(world_size)
    odd = rank % 2
    last_peer = swing_peer(rank, num_steps - 1, world_size)
    bits = (rank + odd * (last_peer - rank)) // 2 + odd * (world_size // 2)
    position = 0 * rank
    for step in range(num_steps):
        position = 2 * position + (bits >> step & 1)
    return position


def _reorder(sides: Sides) -> tuple[Copy, ...]:
    """Return the copies that put each rank's chunk where that rank reduces it."""
    positions: Any = _position(np.arange(math.prod(sides)), sides)  # type: ignore[arg-type]
    moves = enumerate(positions.tolist())
    return tuple(Copy(chunk, position) for chunk, position in moves if chunk != position)


@lru_cache(maxsize=16)
def _butterfly(sides: Sides) -> Butterfly:
    """Return the tables for even sides: the dimensions take turns as long as they have steps left."""
    ranks: Any = np.arange(math.prod(sides))
    peers = []
    for step in range(max(map(_num_steps, sides))):
        for dimension, side in enumerate(sides):
            if step < _num_steps(side):
                stride = math.prod(sides[:dimension])
                index = ranks // stride % side
                peers.append(ranks + (swing_peer(index, step, side) - index) * stride)
    return follow(np.array(peers))


def _with_the_last_apart(rank: int, last: int) -> Iterator[Step]:
    """Yield the steps of a reduce-scatter in which all but rank *last*, an even number, pair up.

    That rank sends each other one straight what that one reduces, and is sent its own chunk, which
    is also *last*.  It does so with those ranks in a step whose chunks rank 0 gives away in it, and
    with rank 0 in the last step: so in every step it sends about as much as the others do.
    """
    # The tables know nobody but those that pair up, so the last rank looks up its neighbour's row, and
    # ``when`` then leaves it out.  *meets* says of each chunk in which step the last rank sends it.
    butterfly = _butterfly((last,))
    pairs_up = rank < last
    one_that_pairs: Any = np.minimum(rank, last - 1)
    position = butterfly.position[one_that_pairs]
    meets = np.minimum(butterfly.parting[0], len(butterfly.peers) - 1)

    for number, step in enumerate(butterfly.reduce_scatter(one_that_pairs)):
        operations: list[Operation] = [replace(op, when=op.when & pairs_up) for op in step]

        meets_last = pairs_up & (meets[position] == number)
        operations += (
            Send(last, last, when=meets_last),
            RecvReduce(last, position, when=meets_last),
        )

        for chunk in np.flatnonzero(meets == number).tolist():
            other = butterfly.owner[chunk]
            operations += (
                Send(other, chunk, when=rank == last),
                RecvReduce(other, last, when=rank == last),
            )
        yield tuple(operations)
