"""PAT: parallel aggregated trees, in which the farther a message goes, the less it carries.

Each rank's part spreads over a binomial tree of its own, over the distance from that rank.  All trees
have one shape, so ranks do the same at the same time, and what they send at once shares a message.
As in NCCL there is no all-reduce of this kind: it would be one of these after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from collectives.algorithms.shared.doubling import doublings, halvings, num_doublings, powers_in
from collectives.errors import NotSupportedError
from collectives.program import Copy, Cost, Recv, RecvReduce, Send, Step, algorithm


def _aggregation(world_size: int, aggregation: int | None) -> tuple[int, int]:
    """Return how many parts share a message at most, and how far apart their distances are."""
    leaves = 1 << num_doublings(world_size)
    most = max(leaves // 2, 1)
    if aggregation is None:
        return most, leaves // most
    if not isinstance(aggregation, int) or aggregation < 1 or aggregation & (aggregation - 1):
        raise NotSupportedError(
            f"pat: aggregation must be a power of two, such as 8, or left out; got {aggregation!r}"
        )
    aggregated = min(aggregation, most)
    return aggregated, min(leaves // aggregated, world_size)


def _cost(world_size: int, *, aggregation: int | None) -> Cost:
    aggregated, stride = _aggregation(world_size, aggregation)
    return Cost(aggregated.bit_length() - 1 + stride - 1, Fraction(world_size - 1, world_size))


# Parts that share a message come from distances that are multiples of a stride, up to the last; so only
# the farthest of them may have no place to go.  Parts that arrive are stored behind the others if it has
# none, and in front of them if all have one.  So the farthest is always first, and the others are a range.


@dataclass(frozen=True, slots=True)
class _Shift:
    """Every rank sends a range of parts to the rank *distance* after it, which stores them elsewhere."""

    distance: int
    sent_from: int
    stored_at: int
    num_parts: int


def _aggregating(distance: int, last: int, stride: int) -> _Shift:
    """Return the shift of parts from the multiples of twice this *distance*."""
    there, arriving = last // (2 * distance) + 1, _arriving(distance, last)
    first = _place(last & -(2 * distance), last, stride) + there - arriving
    return _Shift(distance, first, first + _displacement(distance, last), arriving)


def _visiting(offset: int, last: int, stride: int) -> _Shift:
    """Return the shift of parts to distances that are *offset* above multiples of *stride*."""
    parent = offset & (offset - 1)
    num_parts = _num_parts(offset, last, stride)
    left_out = _num_parts(parent, last, stride) - num_parts
    first, stored_at = (_block(there, last, stride) for there in (parent, offset))
    return _Shift(offset - parent, first + left_out, stored_at, num_parts)


def _stored(last: int, stride: int) -> Iterator[tuple[int, int]]:
    """Yield distances and where the part from there is stored meanwhile."""
    for offset in range(stride):
        left_out = _num_parts(0, last, stride) - _num_parts(offset, last, stride)
        first = _block(offset, last, stride) - left_out
        for distance in range(0, last + 1 - offset, stride):
            yield distance + offset, first + _place(distance, last, stride)


def _num_parts(offset: int, last: int, stride: int) -> int:
    """Return how many distances are *offset* above a multiple of *stride*."""
    return (last - offset) // stride + 1


def _block(offset: int, last: int, stride: int) -> int:
    """Return where the parts from these distances begin: behind those of smaller offsets."""
    return offset * _num_parts(0, last, stride) - max(offset - 1 - last % stride, 0)


def _place(distance: int, last: int, stride: int) -> int:
    """Return where the part from *distance*, a multiple of *stride*, is: the farthest is first."""
    return _displaced(distance, last) - _displaced(last - last % stride, last)


def _displaced(distance: int, last: int) -> int:
    """Return how far the part from *distance* is from where it would be at distance 0."""
    return sum(_displacement(power, last) for power in powers_in(distance))


def _displacement(distance: int, last: int) -> int:
    """Return how far from each other the parts are stored that share a message over *distance*."""
    there, arriving = last // (2 * distance) + 1, _arriving(distance, last)
    return arriving - 2 * arriving * (arriving == there)


def _arriving(distance: int, last: int) -> int:
    """Return how many distances, up to the *last*, are an odd multiple of this one."""
    return last // distance - last // (2 * distance)


@algorithm(name="pat", collective="all_gather", array_form=True, cost=_cost)
def pat_all_gather(rank: int, world_size: int, *, aggregation: int | None = None) -> Iterator[Step]:
    """Yield this rank's steps of an all-gather by parallel aggregated trees.

    Bruck's, with the farthest shift first: it carries one part, the next two, and only the nearest
    half of them all.  ``⌈log2 p⌉`` steps and ``(p-1)/p·n`` bytes, as Bruck, but most of them stay near.

    With *aggregation* a, no message carries more than a parts, which bounds the buffers that a message
    needs: ``log2 a`` steps in which parts come to share messages, then ``2^⌈log2 p⌉/a - 1`` of at most
    a parts, or ``p-1`` of one.  Those visit a tree depth first, so few parts wait to be sent on at
    any time.

    Args:
        rank: sends to ranks after it only.
        world_size: any.
        aggregation: a power of two; not given, there is no limit.

    Source: Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale",
    arXiv 2506.20252, 2025; in NCCL since 2.23.

    Raises:
        NotSupportedError: *aggregation* is no power of two.
    """
    aggregated, stride = _aggregation(world_size, aggregation)
    last = world_size - 1
    yield (Copy(rank, _place(0, last, stride)),)
    for multiple in halvings(aggregated):
        yield _passed_on(rank, world_size, _aggregating(stride * multiple, last, stride))
    for offset in range(1, stride):
        yield _passed_on(rank, world_size, _visiting(offset, last, stride))
    yield tuple(Copy(place, (rank - distance) % world_size) for distance, place in _stored(last, stride))


def _passed_on(rank: int, world_size: int, shift: _Shift) -> Step:
    to, source = (rank + shift.distance) % world_size, (rank - shift.distance) % world_size
    return Send(to, shift.sent_from, shift.num_parts), Recv(source, shift.stored_at, shift.num_parts)


@algorithm(name="pat", collective="reduce_scatter", array_form=True, cost=_cost)
def pat_reduce_scatter(rank: int, world_size: int, *, aggregation: int | None = None) -> Iterator[Step]:
    """Yield this rank's steps of a reduce-scatter by parallel aggregated trees.

    The all-gather backwards, at its cost: what has been reduced nearby goes far, at last and as little.

    Args:
        rank: sends to ranks before it only.
        world_size: any.
        aggregation: a power of two; not given, there is no limit.

    Source: as `pat_all_gather`.

    Raises:
        NotSupportedError: *aggregation* is no power of two.
    """
    aggregated, stride = _aggregation(world_size, aggregation)
    last = world_size - 1
    yield tuple(Copy((rank - distance) % world_size, place) for distance, place in _stored(last, stride))
    for offset in reversed(range(1, stride)):
        yield _reduced(rank, world_size, _visiting(offset, last, stride))
    for multiple in doublings(aggregated):
        yield _reduced(rank, world_size, _aggregating(stride * multiple, last, stride))
    yield (Copy(_place(0, last, stride), rank),)


def _reduced(rank: int, world_size: int, shift: _Shift) -> Step:
    to, source = (rank - shift.distance) % world_size, (rank + shift.distance) % world_size
    return Send(to, shift.stored_at, shift.num_parts), RecvReduce(source, shift.sent_from, shift.num_parts)
