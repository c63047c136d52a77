"""What algorithms whose partners differ in one bit do where world sizes are no powers of two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from collectives.errors import NotSupportedError
from collectives.program import Local, Operation, Program, Recv, RecvReduce, Send, Step


def floor_log2(world_size: int) -> int:
    """Return k of the largest power of two, ``2^k``, that is not above *world_size*."""
    return world_size.bit_length() - 1


def is_power_of_two(world_size: int) -> bool:
    """Return whether *world_size* is a power of two."""
    return world_size & (world_size - 1) == 0


def require_power_of_two(world_size: int, what: str, instead: str) -> None:
    """Refuse any other world size.

    Raises:
        NotSupportedError: *world_size* is no power of two; the message says what to use *instead*.
    """
    if not is_power_of_two(world_size):
        raise NotSupportedError(f"{what} is for powers of two, got {world_size} ranks; use {instead}")


def folded(program: Program, rank: int, world_size: int, num_chunks: int) -> Iterator[Step]:
    """Yield this rank's steps of an all-reduce for any world size, given one for powers of two.

    Of ``2^k + e`` ranks, each of the first e even ones hands its *num_chunks* chunks to its right
    neighbour, which reduces them, and is sent the result in the end.  The other ``2^k``, numbered
    anew without gaps, run *program*.  That costs two steps, and one buffer sent, more.

    Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
    in MPICH", IJHPCA 19(1), 2005, on all-reduce; the neighbours are those of MPICH.
    """
    if is_power_of_two(world_size):
        yield from program(rank, world_size)
        return
    core = 1 << floor_log2(world_size)
    extra = world_size - core
    leaves = (rank < 2 * extra) & (rank % 2 == 0)
    hosts = (rank < 2 * extra) & (rank % 2 == 1)
    stays = (rank >= 2 * extra) | (rank % 2 == 1)
    yield (
        Send(rank + 1, chunk=0, num_chunks=num_chunks, when=leaves),
        RecvReduce(rank - 1, chunk=0, num_chunks=num_chunks, when=hosts),
    )
    for step in program(rank - np.minimum((rank + 1) // 2, extra), core):
        yield tuple(_among_those_that_stay(operation, extra, stays) for operation in step)
    yield (
        Send(rank - 1, chunk=0, num_chunks=num_chunks, when=hosts),
        Recv(rank + 1, chunk=0, num_chunks=num_chunks, when=leaves),
    )


def _among_those_that_stay(operation: Operation, extra: int, stays: bool) -> Operation:
    """Return *operation* of the ranks numbered anew as one of the ranks as they are."""
    when = operation.when & stays
    if isinstance(operation, Local):
        return replace(operation, when=when)
    peer: Any = operation.peer + np.minimum(operation.peer + 1, extra)
    return replace(operation, peer=peer, when=when)
