"""One-shot: every rank gets every buffer and reduces by itself; one latency, and many bytes."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from collectives.program import Copy, Cost, Operation, Recv, Reduce, Send, Step, algorithm


def _cost(world_size: int) -> Cost:
    return Cost(min(world_size - 1, 1), Fraction(world_size - 1))


@algorithm(
    num_chunks=1,
    scratch_chunks=lambda world_size: world_size,
    array_form=True,
    cost=_cost,
)
def one_shot(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's steps of a one-shot all-reduce: all buffers to all ranks, then local sums.

    One step of messages, the fewest that there can be, in which every rank sends its whole buffer to
    all others: ``(p-1)·n`` bytes, and p buffers of scratch.  Worth it for the smallest sizes.  All
    ranks add in the order of ranks, so all get the same bits.

    Source: "one-shot" all-reduce of MSCCL++ and of vLLM's custom all-reduce, for the activations of
    tensor-parallel decoding.
    """
    mine = 1 + rank
    step: list[Operation] = [Copy(0, mine)]
    for distance in range(1, world_size):
        right, left = (rank + distance) % world_size, (rank - distance) % world_size
        step += Send(right, chunk=0), Recv(left, chunk=1 + left)
    yield tuple(step)
    yield (Copy(1, 0),)
    yield tuple(Reduce(1 + other, 0) for other in range(1, world_size))
