"""Schedule of a proved program: who sends which chunks to whom, in which step."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass

from collectives import Algorithm
from collectives.program import Local, Recv, RecvReduce, Send


@dataclass(frozen=True, slots=True)
class ScheduledMessage:
    """``num_chunks`` chunks, from ``chunk`` on, that arrive in those from ``into`` on."""

    source: int
    destination: int
    sent_in_step: int
    received_in_step: int
    chunk: int
    into: int
    num_chunks: int
    reduces: bool


@dataclass(frozen=True, slots=True)
class LocalMove:
    """Chunks that a rank copies, or reduces, into others of its own."""

    rank: int
    step: int
    chunk: int
    into: int
    num_chunks: int
    reduces: bool


@dataclass(frozen=True)
class ProgramSchedule:
    """All that happens in one run of *algorithm*."""

    algorithm: str
    collective: str
    world_size: int
    num_chunks: int
    num_steps: int
    messages: tuple[ScheduledMessage, ...]
    moves: tuple[LocalMove, ...]


def schedule_of(algorithm: Algorithm, world_size: int) -> ProgramSchedule:
    """Return the schedule of a program that is proved: every message has both its sides."""
    sends: defaultdict[tuple[int, int], deque[tuple[int, Send]]] = defaultdict(deque)
    receives: list[tuple[int, int, Recv | RecvReduce]] = []
    moves = []
    num_steps = 0
    for rank in range(world_size):
        for number, step in enumerate(algorithm.steps(rank, world_size)):
            num_steps = max(num_steps, number + 1)
            for operation in step:
                if isinstance(operation, Local):
                    place = operation.source, operation.chunk, operation.num_chunks
                    moves.append(LocalMove(rank, number, *place, operation.reduces))
                elif isinstance(operation, Send):
                    sends[rank, operation.peer].append((number, operation))
                else:
                    receives.append((rank, number, operation))
    messages = []
    for rank, number, receive in receives:
        sent_in, send = sends[receive.peer, rank].popleft()
        chunks = send.chunk, receive.chunk, send.num_chunks
        messages.append(ScheduledMessage(receive.peer, rank, sent_in, number, *chunks, receive.reduces))
    messages.sort(key=lambda message: (message.sent_in_step, message.source, message.destination))
    return ProgramSchedule(
        str(algorithm),
        algorithm.collective,
        world_size,
        algorithm.num_chunks(world_size),
        num_steps,
        tuple(messages),
        tuple(moves),
    )
