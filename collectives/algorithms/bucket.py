"""Bucket: on a torus, one ring per dimension, each dimension on what the one before has left."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from collectives.algorithms.ring import ring_all_gather, ring_reduce_scatter
from collectives.algorithms.shared.embedding import Group, embed, side_by_side
from collectives.algorithms.shared.torus import most_square, parse_sides
from collectives.program import Cost, Step, algorithm


def _sides(world_size: int, shape: str) -> tuple[int, ...]:
    if not shape:
        return most_square(world_size)
    return parse_sides(shape, world_size, default="the most square", what="bucket")


def _num_chunks(world_size: int, *, colors: int) -> int:
    return colors * world_size


def _cost(world_size: int, *, shape: str) -> Cost:
    return Cost(
        2 * sum(side - 1 for side in _sides(world_size, shape)),
        Fraction(2 * (world_size - 1), world_size),
    )


@algorithm(array_form=True, num_chunks=_num_chunks, cost=_cost, ranges={"colors": range(1, 65)})
def bucket(rank: int, world_size: int, *, shape: str = "", colors: int = 1) -> Iterator[Step]:
    """Yield this rank's steps of a bucket all-reduce on a torus.

    The rings of the first dimension reduce-scatter the buffer, those of the second what each rank
    has then, and so on; all-gathers in the reverse order bring it back.  On a torus of sides d_i
    that is ``2 Σ(d_i - 1)`` steps, and ``2(p-1)/p`` buffers sent, all to direct neighbours.

    One such run uses one dimension and direction at a time.  With *colors* the buffer is divided
    into that many parts, each of which begins with another dimension, and beyond one part per
    dimension in the other direction: with 2 per dimension, equal sides keep all links busy.

    Args:
        rank: consecutive ranks lie along the first dimension.
        world_size: the product of the sides.
        shape: the sides, such as ``4x4`` or ``2x4x8``; by default the most square of two.
        colors: parts of the buffer that are under way at the same time.

    Source: Jain and Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus
    interconnects", ICS 2010.

    Raises:
        NotSupportedError: the sides do not make up *world_size*.
    """
    sides = _sides(world_size, shape)
    dimensions = range(len(sides))
    yield from side_by_side(
        *(
            _one_color(
                rank,
                sides,
                order=[(color + n) % len(sides) for n in dimensions],
                backwards=color // len(sides) % 2 == 1,
                first_chunk=color * world_size,
                of=colors * world_size,
            )
            for color in range(colors)
        )
    )


def _one_color(
    rank: int, sides: Sequence[int], *, order: Sequence[int], backwards: bool, first_chunk: int, of: int
) -> Iterator[Step]:
    """Yield the steps on one part of the buffer, dimension by dimension in *order* and back."""
    held = math.prod(sides)
    phases = []
    for dimension in order:
        side, stride = sides[dimension], math.prod(sides[:dimension])
        index = rank // stride % side
        group = Group(index, side, rank - index * stride, stride)
        if backwards:
            group = group.reversed()
        yield from embed(ring_reduce_scatter, group, first_chunk=first_chunk, num_chunks=held, of=of)
        phases.append((group, first_chunk, held))
        held //= side
        first_chunk = first_chunk + group.index * held
    for group, first_chunk, held in reversed(phases):
        yield from embed(ring_all_gather, group, first_chunk=first_chunk, num_chunks=held, of=of)
