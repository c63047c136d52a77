"""Direct: every rank talks to every other at once, so that latency is paid once or twice only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from collectives.algorithms.shared.segments import SEGMENTS
from collectives.program import Cost, Operation, Recv, RecvReduce, Send, Step, algorithm, as_step


def _step_cost(world_size: int) -> Cost:
    return Cost(min(world_size - 1, 1), Fraction(world_size - 1, world_size))


def _all_reduce_cost(world_size: int, *, segments: int) -> Cost:
    return Cost(2 * segments * min(world_size - 1, 1), Fraction(2 * (world_size - 1), world_size))


def _gather_cost(world_size: int) -> Cost:
    sends = min(world_size - 1, 1)
    return Cost(sends, Fraction(sends, world_size))


@algorithm(name="direct", collective="reduce_scatter", array_form=True, cost=_step_cost)
def direct_reduce_scatter(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's step of a reduce-scatter in which all pairs of ranks talk at once.

    Every rank sends each other rank that rank's chunk, and reduces the ``p-1`` that it receives
    into its own: one step of ``p-1`` messages of ``n/p`` bytes.  That pays where the network has
    full bisection bandwidth; elsewhere the messages meet at the receivers.

    Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
    in MPICH", IJHPCA 19(1), 2005, on reduce-scatter by pairwise exchange; here all in one step.
    """
    step: list[Operation] = []
    for distance in range(1, world_size):
        right, left = (rank + distance) % world_size, (rank - distance) % world_size
        step += Send(right, chunk=right), RecvReduce(left, chunk=rank)
    yield tuple(step)


@algorithm(name="direct", collective="all_gather", array_form=True, cost=_step_cost)
def direct_all_gather(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's step of an all-gather in which every rank sends its chunk to all others.

    One step of ``p-1`` messages of ``n/p`` bytes: `direct_reduce_scatter` backwards.

    Source: as `direct_reduce_scatter`.
    """
    step: list[Operation] = []
    for distance in range(1, world_size):
        right, left = (rank + distance) % world_size, (rank - distance) % world_size
        step += Send(right, chunk=rank), Recv(left, chunk=left)
    yield tuple(step)


@algorithm(
    num_chunks=lambda world_size, *, segments: world_size * segments,
    array_form=True,
    cost=_all_reduce_cost,
    ranges=SEGMENTS,
)
def direct(rank: int, world_size: int, *, segments: int = 1) -> Iterator[Step]:
    """Yield this rank's steps of a direct all-reduce: reduce-scatter, then all-gather.

    Two steps, and ``2(p-1)`` chunks of ``n/p`` bytes sent by every rank, which no algorithm can
    beat in bandwidth.  Each chunk is reduced by one rank, so all ranks get the same bits.

    A buffer of several *segments* has that done to one after the other, in two steps each.  A network
    gains nothing by it; ranks that share memory do, as a segment that fits in the cache is gathered
    before it has left it.

    Source: as `direct_reduce_scatter`; "allpairs" in the examples of Microsoft's msccl-tools.
    """
    for segment in range(segments):
        for half in (direct_reduce_scatter, direct_all_gather):
            for step in half(rank, world_size):
                yield tuple(replace(own, chunk=own.chunk * segments + segment) for own in as_step(step))


@algorithm(name="direct", collective="all_to_all", array_form=True, cost=_step_cost)
def direct_all_to_all(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's step of an all-to-all in which every part goes straight to its rank.

    One step of ``p-1`` messages of ``n/p`` bytes, the fewest bytes that there can be; ranks start
    at different peers, so that in a network that serves messages in order they do not queue up.

    Source: Thakur, Rabenseifner and Gropp, as above, on all-to-all of medium size.
    """
    step: list[Operation] = []
    for distance in range(1, world_size):
        right, left = (rank + distance) % world_size, (rank - distance) % world_size
        step += Send(right, chunk=right), Recv(left, chunk=left)
    yield tuple(step)


@algorithm(name="direct", collective="gather", array_form=True, cost=_gather_cost)
def direct_gather(rank: int, world_size: int, *, root: int = 0) -> Iterator[Step]:
    """Yield this rank's step of a gather in which all ranks send their chunk to *root* at once.

    One step; *root* receives ``p-1`` messages of ``n/p`` bytes, the others send one each.

    Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory,
    practice, and experience", CCPE 19(13), 2007, for the bound that it meets.
    """
    step: list[Operation] = [Send(root, chunk=rank, when=rank != root)]
    for distance in range(1, world_size):
        source = (root + distance) % world_size
        step.append(Recv(source, chunk=source, when=rank == root))
    yield tuple(step)


@algorithm(name="direct", collective="scatter", array_form=True, cost=_step_cost)
def direct_scatter(rank: int, world_size: int, *, root: int = 0) -> Iterator[Step]:
    """Yield this rank's step of a scatter in which *root* sends all ranks their chunk at once.

    One step; *root* sends ``p-1`` messages of ``n/p`` bytes: `direct_gather` backwards.

    Source: as `direct_gather`.
    """
    step: list[Operation] = [Recv(root, chunk=rank, when=rank != root)]
    for distance in range(1, world_size):
        destination = (root + distance) % world_size
        step.append(Send(destination, chunk=destination, when=rank == root))
    yield tuple(step)
