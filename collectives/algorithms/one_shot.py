"""One-shot: everybody sends everything to everybody, for messages so small that only latency counts."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from collectives.program import Cost, Operation, RecvReduce, Send, Step, algorithm


def _cost(world_size: int) -> Cost:
    return Cost(min(world_size - 1, 1), Fraction(world_size - 1))


@algorithm(num_chunks=1, array_form=True, cost=_cost)
def one_shot(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's step of an all-reduce in which each rank reduces all buffers for itself.

    One step, the fewest that there can be, of ``p-1`` messages of the whole buffer.  Every rank
    adds to its own buffer, and so in an order of its own: from three ranks on, sums that round may
    differ between the ranks in the last bits.  Where replicas must stay equal, use ``direct``.

    Source: the one-stage all-reduce of vLLM, ``csrc/custom_all_reduce.cuh``, for the small messages
    of tensor parallelism; it reads all buffers in place, and so can add in the order of ranks.
    """
    step: list[Operation] = []
    for distance in range(1, world_size):
        step.append(Send((rank + distance) % world_size, chunk=0))
        step.append(RecvReduce((rank - distance) % world_size, chunk=0))
    yield tuple(step)
