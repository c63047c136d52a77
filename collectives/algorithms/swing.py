"""Swing: halving and doubling whose partners stay near, by swinging to and fro on a ring.

All three collectives number chunks so that what travels together is together in the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from collectives.algorithms.butterfly import Butterfly, backwards, follow
from collectives.algorithms.power_of_two import is_power_of_two
from collectives.program import Copy, Cost, Operation, RecvReduce, Send, Step, algorithm


def _num_steps(world_size: int) -> int:
    pairing = max(world_size - world_size % 2, 1)
    return (pairing - 1).bit_length()


def _half_cost(world_size: int) -> Cost:
    return Cost(_num_steps(world_size), Fraction(world_size - 1, world_size))


def _all_reduce_cost(world_size: int) -> Cost:
    return Cost(2 * _num_steps(world_size), Fraction(2 * (world_size - 1), world_size))


@algorithm(array_form=True, cost=_all_reduce_cost)
def swing(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's steps of the bandwidth-optimal Swing all-reduce.

    In step s even ranks pair with rank ``r + ρ(s)`` and odd ones with ``r - ρ(s)``, where
    ``ρ(s) = (1 - (-2)^(s+1)) / 3``, and each pair halves what it has still to reduce; then the
    same pairs, in reverse order, double what they have.  ``2 ⌈log2 p⌉`` steps and ``2(p-1)/p``
    buffers sent, as halving and doubling, but partners are a third closer on a ring or torus.

    If p is even but no power of two, the halves are uneven, and may travel as several messages of
    one step.  If p is odd, the last rank exchanges its part of the buffer with all others directly,
    one part with each; the others pair up, in ``2 ⌈log2(p-1)⌉`` steps.  The bytes stay the fewest
    that there can be.

    Source: De Sensi et al., "Swing: short-cutting rings for higher bandwidth allreduce", NSDI 2024,
    section 3.
    """
    halvings = list(_halvings(rank, world_size))
    yield from halvings
    yield from backwards(halvings)


@algorithm(name="swing", collective="reduce_scatter", array_form=True, cost=_half_cost)
def swing_reduce_scatter(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's steps of a reduce-scatter: the first half of the Swing all-reduce.

    ``⌈log2 p⌉`` steps, ``⌈log2(p-1)⌉`` for odd p, and ``(p-1)/p`` of the buffer sent, the fewest bytes
    that there can be.  Each rank puts its chunks into the order of the all-reduce before, and its own
    into its place after.

    Source: as `swing`.
    """
    yield _reorder(world_size)
    yield from _halvings(rank, world_size)
    yield (Copy(_position(rank, world_size), rank),)


@algorithm(name="swing", collective="all_gather", array_form=True, cost=_half_cost)
def swing_all_gather(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's steps of an all-gather: the second half of the Swing all-reduce.

    `swing_reduce_scatter` backwards, at the same cost.

    Source: as `swing`.
    """
    yield (Copy(rank, _position(rank, world_size)),)
    yield from backwards(_halvings(rank, world_size))
    yield tuple(Copy(copy.chunk, copy.source) for copy in _reorder(world_size))


def swing_peer(rank: int, step: int, world_size: int) -> int:
    """Return with whom *rank* pairs in a step, at distance 1, -1, 3, -5, 11 and so on if it is even.

    Distances count modulo *world_size*, which must be even.
    """
    power: int = (-2) ** (step + 1)
    return (rank + (1 - 2 * (rank % 2)) * (1 - power) // 3) % world_size


def _halvings(rank: int, world_size: int) -> Iterator[Step]:
    """Yield the steps of a reduce-scatter that leaves the chunk at its position to each rank."""
    if is_power_of_two(world_size):
        position = _position(rank, world_size)
        for step in range(_num_steps(world_size)):
            width = world_size >> step + 1
            kept = position // width * width
            peer = swing_peer(rank, step, world_size)
            yield Send(peer, kept ^ width, width), RecvReduce(peer, kept, width)
    elif world_size % 2 == 0:
        yield from _butterfly(world_size).reduce_scatter(rank)
    else:
        yield from _with_the_last_apart(rank, world_size - 1)


def _position(rank: int, world_size: int) -> int:
    """Return the chunk that *rank* reduces.

    For powers of two: even ranks that share a half before step s agree modulo ``2^(s+1)``, and an odd
    rank goes with the even one that it meets last, so step s divides by bit ``s+1`` of that even rank,
    and the last step by parity.
    """
    if not is_power_of_two(world_size):
        pairing = world_size - world_size % 2
        position: int = np.append(_butterfly(pairing).position, pairing)[rank]
        return position
    num_steps = _num_steps(world_size)
    odd = rank % 2
    last_peer = swing_peer(rank, num_steps - 1, world_size)
    bits = (rank + odd * (last_peer - rank)) // 2 + odd * (world_size // 2)
    position = 0 * rank
    for step in range(num_steps):
        position = 2 * position + (bits >> step & 1)
    return position


def _reorder(world_size: int) -> tuple[Copy, ...]:
    """Return the copies that put each rank's chunk where that rank reduces it."""
    positions: Any = _position(np.arange(world_size), world_size)  # type: ignore[arg-type]
    moves = enumerate(positions.tolist())
    return tuple(Copy(chunk, position) for chunk, position in moves if chunk != position)


@lru_cache(maxsize=16)
def _butterfly(world_size: int) -> Butterfly:
    ranks: Any = np.arange(world_size)
    return follow(np.array([swing_peer(ranks, step, world_size) for step in range(_num_steps(world_size))]))


def _with_the_last_apart(rank: int, last: int) -> Iterator[Step]:
    """Yield the steps of a reduce-scatter in which all but rank *last*, an even number, pair up.

    That rank sends each other one straight what that one reduces, and is sent its own chunk, which
    is also *last*.  It does so with those ranks in a step whose chunks rank 0 gives away in it, and
    with rank 0 in the last step: so in every step it sends about as much as the others do.
    """
    butterfly = _butterfly(last)
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
