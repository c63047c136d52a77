"""An independent reading of the rules in `collectives.program`, as naive as possible.

What a chunk holds is a bag of pairs (rank, chunk), one for each contribution that has been added
to it, or None where nobody has put anything.  Used to check `verify`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from collectives.program import Copy, RecvReduce, Send

Bag = Counter[tuple[int, int]] | None
Buffers = list[list[Bag]]


def all_reduce_buffers(world_size: int, num_chunks: int) -> Buffers:
    return [[Counter({(rank, chunk): 1}) for chunk in range(num_chunks)] for rank in range(world_size)]


def is_all_reduced(buffers: Buffers) -> bool:
    world_size = len(buffers)
    return all(
        bag == Counter({(rank, chunk): 1 for rank in range(world_size)})
        for chunks in buffers
        for chunk, bag in enumerate(chunks)
    )


def run(programs: list[list[tuple[Any, ...]]], state: Buffers, may_move: bool = False) -> Buffers | None:
    """Return the chunks of every rank at the end, or None if it does not get there.

    *may_move*: a message may arrive in other chunks than it left.
    """
    world_size = len(programs)
    at = [0] * world_size
    posted: list[dict[int, Any] | None] = [None] * world_size
    log: list[list[Any]] = []  # one entry for each operation posted: [rank, number, peer, what is sent]
    while True:
        moved = False
        for rank in range(world_size):
            if posted[rank] is None and at[rank] < len(programs[rank]):
                arrived: dict[int, Any] = {}
                posted[rank] = arrived
                for number, operation in enumerate(programs[rank][at[rank]]):
                    if isinstance(operation, Copy):
                        if operation.source != operation.chunk and not may_move:
                            return None
                        arrived[number] = _read(state[rank], operation.source, operation.num_chunks)
                    else:
                        sent = None
                        if isinstance(operation, Send):
                            sent = _read(state[rank], operation.chunk, operation.num_chunks)
                        log.append([rank, number, operation.peer, sent])
                moved = True
        for send in [entry for entry in log if entry[3] is not None]:
            first = next(e for e in log if e[3] is not None and e[0] == send[0] and e[2] == send[2])
            receive = next((e for e in log if e[3] is None and e[0] == send[2] and e[2] == send[0]), None)
            if first is not send or receive is None:
                continue
            left = programs[send[0]][at[send[0]]][send[1]]
            taken = programs[receive[0]][at[receive[0]]][receive[1]]
            if taken.num_chunks != left.num_chunks or (taken.chunk != left.chunk and not may_move):
                return None
            posted[receive[0]][receive[1]] = send[3]  # type: ignore[index]
            posted[send[0]][send[1]] = None  # type: ignore[index]
            log.remove(send)
            log.remove(receive)
            moved = True
        for rank in range(world_size):
            done = posted[rank]
            if done is None or len(done) < len(programs[rank][at[rank]]):
                continue
            for number in sorted(n for n in done if done[n] is not None):
                operation = programs[rank][at[rank]][number]
                for chunk, bag in enumerate(done[number], start=operation.chunk):
                    held = state[rank][chunk]
                    if isinstance(operation, RecvReduce):
                        bag = None if bag is None or held is None else bag + held
                    state[rank][chunk] = bag
            posted[rank] = None
            at[rank] += 1
            moved = True
        if not moved:
            finished = all(at[rank] == len(programs[rank]) for rank in range(world_size))
            return state if finished else None


def _read(chunks: list[Bag], first: int, num_chunks: int) -> list[Bag]:
    return list(chunks[first : first + num_chunks])
