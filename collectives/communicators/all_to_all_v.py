"""All-to-all of parts of any size: first the ranks tell each other the sizes, then they send the parts.

Without the first step, ranks that disagree about a size would corrupt data or hang.  So every pair
of ranks compares what either sends with what the other expects.  A pair that disagrees sends each
other nothing, and both raise; all other pairs go on as if nothing were wrong, so nobody hangs.
MPI calls the collective ``MPI_Alltoallv``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate

import torch

from collectives.algorithms.direct import direct_all_to_all
from collectives.errors import MismatchError
from collectives.execution.call import Call
from collectives.execution.execute import execute
from collectives.execution.transport import Execution, Poster
from collectives.program import Algorithm, Copy, Operation, Recv, Send, Step
from collectives.program.chunking import Buffer, Splits


def all_to_all_v(
    output: torch.Tensor,
    tensor: torch.Tensor,
    output_splits: Sequence[int],
    input_splits: Sequence[int],
    transport: Poster,
    call: Call,
) -> Execution:
    """Send every part to its rank.

    Args:
        output: flat, contiguous; part q comes from rank q.
        tensor: flat, contiguous and elsewhere; part q goes to rank q.
        output_splits: elements of each part of *output*.
        input_splits: elements of each part of *tensor*.
        transport: moves the messages.
        call: names the operation, and decides the fingerprint.

    Raises:
        MismatchError: this rank and another disagree about the size of a part; names all such.
    """
    rank, world_size, fingerprint = transport.rank, transport.world_size, call.fingerprint()
    own = list(zip(input_splits, output_splits, strict=True))
    sizes = torch.tensor(own, dtype=torch.int64, device=tensor.device)
    telling = Buffer.for_program(direct_all_to_all, world_size, sizes.view(-1), sizes.element_size())
    yield from execute(direct_all_to_all, telling, transport, fingerprint)

    told: list[list[int]] = sizes.tolist()
    agreed = [peer for peer in range(world_size) if (told[peer][1], told[peer][0]) == own[peer]]

    starts = tuple(accumulate((*input_splits, *output_splits), initial=0))
    buffer = Buffer(Splits(starts, world_size, tensor.element_size()), tensor, output)
    yield from execute(among(agreed), buffer, transport, fingerprint)

    disagreements = []
    for peer in set(range(world_size)).difference(agreed):
        (sent, expected), (sent_here, expected_there) = own[peer], told[peer]
        for source, count, destination, wanted in (
            (rank, sent, peer, expected_there),
            (peer, sent_here, rank, expected),
        ):
            if count != wanted:
                disagreements.append(
                    f"rank {source} sends {count} elements to rank {destination}, which expects {wanted}"
                )
    if disagreements:
        raise MismatchError(f"rank {rank}: {call}: {'; '.join(disagreements)}")


def among(peers: Collection[int]) -> Algorithm:
    """Return an all-to-all with *peers* only: chunks are the parts to send, then those to receive."""

    def program(rank: int, world_size: int) -> Iterator[Step]:
        step: list[Operation] = [Copy(rank, world_size + rank)]
        for distance in range(1, world_size):
            right, left = (rank + distance) % world_size, (rank - distance) % world_size
            step.append(Send(right, chunk=right, when=right in peers))
            step.append(Recv(left, chunk=world_size + left, when=left in peers))
        yield tuple(step)

    return Algorithm("direct", program, collective="all_to_all")
