"""PAT: parallel aggregated trees, in which the farther a message goes, the less it carries.

Each rank's part spreads over a binomial tree of its own, over the distance from that rank.  All trees
have one shape, so ranks do the same at the same time, and what they send at once shares a message.
As in NCCL there is no all-reduce of this kind: it would be one of these after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from collectives.errors import NotSupportedError
from collectives.program import Copy, Cost, Recv, RecvReduce, Send, Step, algorithm


def _aggregation(world_size: int, aggregation: int | None) -> tuple[int, int]:
    """Return how many parts share a message at most, and how far apart their distances are."""
    leaves = 1 << (world_size - 1).bit_length()
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


@dataclass(frozen=True, slots=True)
class _Shift:
    """Every rank sends a range of parts to the rank *distance* after it, which stores them elsewhere."""

    distance: int
    sent_from: int
    stored_at: int
    num_parts: int


@cache
def _plan(world_size: int, aggregation: int | None) -> tuple[Sequence[_Shift], Mapping[int, int]]:
    """Return the shifts of an all-gather, and where the part from each distance is stored meanwhile.

    Parts that share a message come from distances that are multiples of a stride, so only the
    farthest of them may have no place to go.  Stored with the farthest first, the others are a range.
    """
    aggregated, stride = _aggregation(world_size, aggregation)
    blocks: dict[int, list[int]] = {}
    moves: list[tuple[int, list[int]]] = []

    def move(block: list[int], distance: int) -> list[int]:
        moving = [source for source in block if source + distance < world_size]
        moves.append((distance, moving))
        return [source + distance for source in moving]

    block = [0]
    for level in reversed(range(aggregated.bit_length() - 1)):
        arrived = move(block, stride << level)
        block = arrived + block if len(arrived) == len(block) else block + arrived
    blocks[0] = block
    for offset in range(1, stride):
        parent = offset & (offset - 1)
        blocks[offset] = move(blocks[parent], offset - parent)
    order = [source for offset in range(stride) for source in blocks[offset]]
    place = {source: number for number, source in enumerate(order)}
    shifts = [
        _Shift(distance, place[moving[0]], place[moving[0] + distance], len(moving))
        for distance, moving in moves
    ]
    return shifts, place


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
    shifts, place = _plan(world_size, aggregation)
    yield (Copy(rank, place[0]),)
    for shift in shifts:
        yield (
            Send((rank + shift.distance) % world_size, shift.sent_from, shift.num_parts),
            Recv((rank - shift.distance) % world_size, shift.stored_at, shift.num_parts),
        )
    yield tuple(Copy(place[distance], (rank - distance) % world_size) for distance in range(world_size))


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
    shifts, place = _plan(world_size, aggregation)
    yield tuple(Copy((rank - distance) % world_size, place[distance]) for distance in range(world_size))
    for shift in reversed(shifts):
        yield (
            Send((rank - shift.distance) % world_size, shift.stored_at, shift.num_parts),
            RecvReduce((rank + shift.distance) % world_size, shift.sent_from, shift.num_parts),
        )
    yield (Copy(place[0], rank),)
