"""An independent reading of the rules in `collectives.program`, as naive as possible.

Every rank's chunks hold numbers in which contributions can be told apart (rank q contributes
``BASE**q``, so a contribution that arrives twice shows as a digit 2).  Used to check `verify`.
"""

from __future__ import annotations

from typing import Any

from collectives.program import Copy, RecvReduce, Send

BASE = 1000


def run(programs: list[list[tuple[Any, ...]]], num_chunks: int) -> list[list[int]] | None:
    """Return the chunks of every rank at the end, or None if it does not get there."""
    world_size = len(programs)
    state = [[BASE**rank] * num_chunks for rank in range(world_size)]
    at = [0] * world_size
    posted: list[dict[int, Any] | None] = [None] * world_size
    log: list[list[Any]] = []  # one entry for each operation posted: [rank, number, peer, is_send, taken]
    while True:
        moved = False
        for rank in range(world_size):
            if posted[rank] is None and at[rank] < len(programs[rank]):
                posted[rank] = {}
                for number, operation in enumerate(programs[rank][at[rank]]):
                    if isinstance(operation, Copy):
                        posted[rank][number] = _read(state[rank], operation.source, operation.num_chunks)
                    else:
                        kept = None
                        if isinstance(operation, Send):
                            kept = _read(state[rank], operation.chunk, operation.num_chunks)
                        log.append([rank, number, operation.peer, kept is not None, kept])
                moved = True
        for send in [entry for entry in log if entry[3]]:
            earlier = [entry for entry in log if entry[3] and entry[0] == send[0] and entry[2] == send[2]]
            if earlier[0] is not send:
                continue
            receive = next((e for e in log if not e[3] and e[0] == send[2] and e[2] == send[0]), None)
            if receive is None:
                continue
            operation = programs[receive[0]][at[receive[0]]][receive[1]]
            if operation.num_chunks != len(send[4]):
                return None
            posted[receive[0]][receive[1]] = send[4]
            posted[send[0]][send[1]] = None
            log.remove(send)
            log.remove(receive)
            moved = True
        for rank in range(world_size):
            done = posted[rank]
            if done is None or len(done) < len(programs[rank][at[rank]]):
                continue
            for number in sorted(n for n in done if done[n] is not None):
                operation = programs[rank][at[rank]][number]
                for offset, value in enumerate(done[number]):
                    chunk = operation.chunk + offset
                    state[rank][chunk] = value + (
                        state[rank][chunk] if isinstance(operation, RecvReduce) else 0
                    )
            posted[rank] = None
            at[rank] += 1
            moved = True
        if not moved:
            finished = all(at[rank] == len(programs[rank]) for rank in range(world_size))
            return state if finished else None


def _read(chunks: list[int], first: int, num_chunks: int) -> list[int]:
    return chunks[first : first + num_chunks]
