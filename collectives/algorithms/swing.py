"""Swing: halving and doubling whose partners stay near, by swinging to and fro on a ring."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from collectives.errors import NotSupportedError
from collectives.program import Cost, Recv, RecvReduce, Send, Step, algorithm


def _cost(world_size: int) -> Cost:
    return Cost(2 * _num_steps(world_size), Fraction(2 * (world_size - 1), world_size))


def _num_steps(world_size: int) -> int:
    return (world_size - 1).bit_length()


def _distance(step: int) -> int:
    """Return the distance ρ of a step: 1, -1, 3, -5, 11 and so on."""
    power: int = (-2) ** (step + 1)
    return (1 - power) // 3


@algorithm(array_form=True, cost=_cost)
def swing(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's steps of the bandwidth-optimal Swing all-reduce, for powers of two.

    In step s even ranks pair with rank ``r + ρ(s)`` and odd ones with ``r - ρ(s)``, where
    ``ρ(s) = (1 - (-2)^(s+1)) / 3``, and each pair halves what it has still to reduce; then the
    same pairs, in reverse order, double what they have.  ``2 log2 p`` steps and ``2(p-1)/p``
    buffers sent, as halving and doubling, but partners are a third closer on a ring or torus.

    With chunk r reduced by rank r, messages would be scattered over the buffer.  Here chunks are
    numbered so that every half is contiguous: even ranks that share a half before step s agree
    modulo ``2^(s+1)``, and an odd rank goes with the even one that it meets last, so step s divides
    by bit ``s+1`` of that even rank, and the last step by parity.

    Source: De Sensi et al., "Swing: short-cutting rings for higher bandwidth allreduce", NSDI 2024,
    section 3.

    Raises:
        NotSupportedError: *world_size* is no power of two.
    """
    num_steps = _num_steps(world_size)
    if world_size != 1 << num_steps:
        raise NotSupportedError(
            f"swing is for powers of two, got {world_size} ranks; use ring or bucket, which take any number"
        )
    odd = rank % 2
    even_partner = (rank - odd * _distance(num_steps - 1)) % world_size
    bits = even_partner // 2 + odd * (world_size // 2)
    halvings = []
    first, width = 0 * rank, world_size
    for step in range(num_steps):
        width //= 2
        upper = bits >> step & 1
        kept, given = first + upper * width, first + (1 - upper) * width
        peer = (rank + (1 - 2 * odd) * _distance(step)) % world_size
        yield Send(peer, given, width), RecvReduce(peer, kept, width)
        halvings.append((peer, kept, given, width))
        first = kept
    for peer, kept, given, width in reversed(halvings):
        yield Send(peer, kept, width), Recv(peer, given, width)
