"""Any program as a schedule: what all ranks do in a step, side by side."""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import zip_longest

from collectives.errors import NotSupportedError
from collectives.formats.schedule_file import Message, NetworkOfSchedule, Schedule
from collectives.program import Algorithm, Local, Recv, RecvReduce, Send, Step


def schedule_of(algorithm: Algorithm, world_size: int, network: NetworkOfSchedule) -> Schedule:
    """Return *algorithm* for *world_size* ranks as data.

    Args:
        algorithm: a program that has been proved, with its parameters.
        world_size: number of ranks.
        network: for which it was chosen.

    Raises:
        NotSupportedError: the ends of a message are in different steps, or it does not run on so many ranks.
    """
    of_ranks = [algorithm.steps(rank, world_size) for rank in range(world_size)]
    return Schedule(
        name=algorithm.name,
        collective=algorithm.collective,
        ranks=world_size,
        chunks=algorithm.num_chunks(world_size),
        scratch=algorithm.num_scratch_chunks(world_size),
        root=algorithm.parameters.get("root", 0),
        network=network,
        made_by=f"{algorithm}, as it ships",
        steps=tuple(
            _messages(step, f"{algorithm}, step {number}")
            for number, step in enumerate(zip_longest(*of_ranks, fillvalue=()))
        ),
    )


def _messages(step: tuple[Step, ...], where: str) -> tuple[Message, ...]:
    sent: defaultdict[tuple[int, int], deque[Send]] = defaultdict(deque)
    for rank, operations in enumerate(step):
        for operation in operations:
            if isinstance(operation, Send):
                sent[rank, operation.peer].append(operation)
    messages: list[Message] = []
    for rank, operations in enumerate(step):
        for operation in operations:
            if isinstance(operation, Local):
                source, start = rank, operation.source
            elif isinstance(operation, Recv | RecvReduce):
                source = operation.peer
                if not sent[source, rank]:
                    raise NotSupportedError(f"{where}: rank {rank} receives what is sent in another step")
                start = sent[source, rank].popleft().chunk
            else:
                continue
            messages.append(
                Message(source, rank, start, operation.chunk, operation.num_chunks, operation.reduces)
            )
    if any(sent.values()):
        raise NotSupportedError(f"{where}: what is sent is received in another step")
    return tuple(messages)
