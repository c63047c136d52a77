"""Chain: each rank hands on to the next, in segments, so that all links are busy at once."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from collectives.algorithms.shared.segments import SEGMENTS
from collectives.program import Cost, Recv, RecvReduce, Send, Step, algorithm


def _one_way_cost(world_size: int, *, segments: int) -> Cost:
    if world_size == 1:
        return Cost(0, Fraction(0))
    return Cost(world_size - 2 + segments, Fraction(1))


def _all_reduce_cost(world_size: int, *, segments: int) -> Cost:
    if world_size == 1:
        return Cost(0, Fraction(0))
    inner_ranks_send_twice = Fraction(min(world_size - 1, 2))
    return Cost(2 * (world_size - 1) + segments - 1, inner_ranks_send_twice)


def _segments(world_size: int, *, segments: int) -> int:
    return segments


@algorithm(
    name="chain",
    collective="broadcast",
    num_chunks=_segments,
    array_form=True,
    cost=_one_way_cost,
    ranges=SEGMENTS,
)
def chain_broadcast(rank: int, world_size: int, *, root: int = 0, segments: int = 4) -> Iterator[Step]:
    """Yield this rank's steps of a pipelined broadcast along a chain that starts at *root*.

    Every rank hands on one segment while it receives the next: ``p-2+s`` steps of ``n/s`` bytes
    for s segments.  The best s is ``√((p-2)nβ/α)``.

    Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
    in MPICH", IJHPCA 19(1), 2005; Chan, Heimlich, Purkayastha and van de Geijn, "Collective
    communication: theory, practice, and experience", CCPE 19(13), 2007.
    """
    place = (rank - root) % world_size
    for step in range(_one_way_cost(world_size, segments=segments).num_steps):
        yield _away_from_root(rank, place, world_size, step - place, segments)


@algorithm(
    name="chain",
    collective="reduce",
    num_chunks=_segments,
    array_form=True,
    cost=_one_way_cost,
    ranges=SEGMENTS,
)
def chain_reduce(rank: int, world_size: int, *, root: int = 0, segments: int = 4) -> Iterator[Step]:
    """Yield this rank's steps of a pipelined reduce along a chain that ends at *root*.

    The broadcast backwards: a segment collects every rank's contribution on its way, in
    ``p-2+s`` steps of ``n/s`` bytes for s segments.

    Source: as `chain_broadcast`.
    """
    place = (rank - root) % world_size
    for step in range(_one_way_cost(world_size, segments=segments).num_steps):
        yield _towards_root(rank, place, world_size, step - (world_size - 1 - place), segments)


@algorithm(
    name="chain",
    num_chunks=_segments,
    array_form=True,
    cost=_all_reduce_cost,
    ranges=SEGMENTS,
)
def chain(rank: int, world_size: int, *, segments: int = 4) -> Iterator[Step]:
    """Yield this rank's steps of an all-reduce along a chain: reduce to rank 0, broadcast back.

    A segment turns back as soon as it has reached rank 0, while later ones are still on their
    way there: ``2(p-1)+s-1`` steps for s segments, in each of which a rank sends at most
    ``n/s`` bytes in either direction.

    Source: as `chain_broadcast`.
    """
    for step in range(_all_reduce_cost(world_size, segments=segments).num_steps):
        yield (
            *_towards_root(rank, rank, world_size, step - (world_size - 1 - rank), segments),
            *_away_from_root(rank, rank, world_size, step - (world_size - 1) - rank, segments),
        )


def _away_from_root(rank: int, place: int, world_size: int, segment: int, segments: int) -> Step:
    """Return a step of the rank at *place* in the chain that hands *segment* on, if there is one."""
    following = segment + 1
    return (
        Send(
            (rank + 1) % world_size,
            segment,
            when=(place < world_size - 1) & (segment >= 0) & (segment < segments),
        ),
        Recv(
            (rank - 1) % world_size,
            following,
            when=(place > 0) & (following >= 0) & (following < segments),
        ),
    )


def _towards_root(rank: int, place: int, world_size: int, segment: int, segments: int) -> Step:
    """Return a step of the rank at *place* in the chain that hands *segment* back, if there is one."""
    following = segment + 1
    return (
        Send(
            (rank - 1) % world_size,
            segment,
            when=(place > 0) & (segment >= 0) & (segment < segments),
        ),
        RecvReduce(
            (rank + 1) % world_size,
            following,
            when=(place < world_size - 1) & (following >= 0) & (following < segments),
        ),
    )
