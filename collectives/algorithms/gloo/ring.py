"""Gloo's rings: chunks go round in segments, two in flight, towards the rank below.

A chunk is divided into at least two segments, so that one is on its way while another is reduced; a segment
has at most 1 MiB (``kMaxSegmentSize``).  See `collectives.catalogue.native` for how many there are at a size.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from collectives.program import Cost, Operation, Recv, RecvReduce, Send, Step, algorithm

IN_FLIGHT = 2
SEGMENTS = {"segments": range(IN_FLIGHT, (1 << 20) + 1)}
"""Segments that a rank has under way at once."""


def _num_chunks(world_size: int, *, segments: int) -> int:
    return world_size * segments


def _num_steps(world_size: int, segments: int) -> int:
    return -(-(world_size - 1) * segments // IN_FLIGHT)


def _all_reduce_cost(world_size: int, *, segments: int) -> Cost | None:
    if segments != IN_FLIGHT:
        return None
    return Cost(2 * _num_steps(world_size, segments), Fraction(2 * (world_size - 1), world_size))


def _all_gather_cost(world_size: int) -> Cost:
    return Cost(world_size - 1, Fraction(world_size - 1, world_size))


@algorithm(name="gloo_ring", num_chunks=_num_chunks, array_form=True, cost=_all_reduce_cost, ranges=SEGMENTS)
def gloo_ring(rank: int, world_size: int, *, segments: int = IN_FLIGHT) -> Iterator[Step]:
    """Yield this rank's steps of Gloo's ring all-reduce.

    Chunks of *segments* segments go round the ring twice: each collects the contributions of all ranks
    on the way to its own rank, then all ranks receive it.  As many bytes, and as many steps, as `ring`.

    Args:
        rank: this rank, or all.
        world_size: number of ranks.
        segments: of a chunk, at least 2.

    Source: gloo/allreduce.cc, function ring.
    """
    yield from _reduce_scatter(rank, world_size, segments)
    for step in _pairs((world_size - 1) * segments):
        yield _passed_on(rank, world_size, segments, step, first_chunk=rank, receive=Recv)


@algorithm(
    name="gloo_ring",
    collective="reduce_scatter",
    num_chunks=_num_chunks,
    array_form=True,
    cost=_all_reduce_cost,
    ranges=SEGMENTS,
)
def gloo_ring_reduce_scatter(rank: int, world_size: int, *, segments: int = IN_FLIGHT) -> Iterator[Step]:
    """Yield this rank's steps of torch's reduce-scatter over Gloo: an all-reduce of the whole buffer.

    Twice the bytes that a reduce-scatter needs.

    Args:
        rank: this rank, or all.
        world_size: number of ranks.
        segments: of a chunk, at least 2.

    Source: as `gloo_ring`; torch, ProcessGroupGloo.cpp, reduce_scatter.
    """
    yield from gloo_ring(rank, world_size, segments=segments)


@algorithm(
    name="gloo_ring",
    collective="all_gather",
    num_chunks=lambda world_size: world_size * IN_FLIGHT,
    array_form=True,
    cost=_all_gather_cost,
)
def gloo_ring_all_gather(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's steps of Gloo's ring all-gather, towards the rank above, in halves of a part.

    Source: gloo/allgather.cc.
    """
    above, below = (rank + 1) % world_size, (rank - 1) % world_size
    for step in range(world_size - 1):
        sent, received = (rank - step) % world_size, (rank - step - 1) % world_size
        halves: list[Operation] = []
        for half in range(IN_FLIGHT):
            halves += Send(above, sent * IN_FLIGHT + half), Recv(below, received * IN_FLIGHT + half)
        yield tuple(halves)


@algorithm(name="gloo_ring", collective="reduce", num_chunks=_num_chunks, array_form=True, ranges=SEGMENTS)
def gloo_ring_reduce(
    rank: int, world_size: int, *, root: int = 0, segments: int = IN_FLIGHT
) -> Iterator[Step]:
    """Yield this rank's steps of Gloo's reduce: a reduce-scatter by a ring, then a gather to *root*.

    Of a chunk of more than two segments, all but two go one rank too far: Gloo's loop ends two segments
    before the end of the buffer, where it might end a chunk before.  Nobody needs them.

    Args:
        rank: this rank, or all.
        world_size: number of ranks.
        root: the rank that holds the result.
        segments: of a chunk, at least 2.

    Source: gloo/reduce.cc.
    """
    yield from _reduce_scatter(rank, world_size, segments)
    needed = (world_size - 1) * segments
    if world_size > 1:
        for step in _pairs(segments - IN_FLIGHT):
            further = tuple(needed + number for number in step)
            yield _passed_on(rank, world_size, segments, further, first_chunk=rank + 1, receive=Recv)

    gathered: list[Operation] = [Send(root, rank * segments, segments, when=rank != root)]
    for distance in range(1, world_size):
        source = (root + distance) % world_size
        gathered.append(Recv(source, source * segments, segments, when=rank == root))
    yield tuple(gathered)


def _reduce_scatter(rank: int, world_size: int, segments: int) -> Iterator[Step]:
    """Yield steps after which each rank has reduced the chunk of its own number."""
    for step in _pairs((world_size - 1) * segments):
        yield _passed_on(rank, world_size, segments, step, first_chunk=rank + 1, receive=RecvReduce)


def _pairs(num_segments: int) -> Iterator[tuple[int, ...]]:
    """Yield the numbers of segments, two at a time."""
    for first in range(0, num_segments, IN_FLIGHT):
        yield tuple(range(first, min(first + IN_FLIGHT, num_segments)))


def _passed_on(
    rank: int,
    world_size: int,
    segments: int,
    step: tuple[int, ...],
    *,
    first_chunk: int,
    receive: type[Recv] | type[RecvReduce],
) -> Step:
    """Return the step in which segments, counted from *first_chunk* on, go to the rank below."""
    above, below = (rank + 1) % world_size, (rank - 1) % world_size
    operations: list[Operation] = []
    for number in step:
        sent = (first_chunk * segments + number) % (world_size * segments)
        received = (sent + segments) % (world_size * segments)
        operations += Send(below, sent), receive(above, received)
    return tuple(operations)
