"""Data of a collective of all ranks, carried out row by row on one tensor that holds all ranks' buffers.

What a program does in a row, all ranks of a group do at once: chunks are read, and written or reduced
into, by index.  The results are to the bit those of the ranks' own programs
(``tests/collectives/virtual/test_batched_execution.py``).  Programs whose sends and receives do not match row
by row cannot be carried out so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from collectives.errors import NotExactError
from collectives.program import Algorithm, Local, Send, Step
from collectives.program.chunking import Buffer, Chunking
from collectives.program.program_key import ProgramKey
from collectives.timing.rows.pattern import Pattern, over_ranks, patterned_rows
from sim.units import Int64Array

MAX_NBYTES = 1 << 28
"""Of all ranks' buffers together: where they are larger, copying them together costs more than it saves."""


@dataclass(frozen=True)
class Move:
    """One operation of all ranks in a row, as far as they have it: where to, where from.

    Attributes:
        to: rank and chunks that are written.
        of: rank and chunks that are read.
        reduces: what is read is reduced into what is there.
    """

    to: tuple[torch.Tensor, torch.Tensor]
    of: tuple[torch.Tensor, torch.Tensor]
    reduces: bool


def moves_of(algorithm: Algorithm, chunking: object, num_ranks: int) -> Sequence[Sequence[Move]] | None:
    """Return what a collective reads and writes in each row, or None if it is to go rank by rank."""
    if (
        not isinstance(chunking, Chunking)
        or chunking.count % chunking.num_parts
        or not 0 < chunking.count * chunking.itemsize * num_ranks <= MAX_NBYTES
    ):
        return None
    return _moves(ProgramKey.of(algorithm), num_ranks, chunking)


def carry_out(algorithm: Algorithm, moves: Sequence[Sequence[Move]], buffers: Mapping[int, Buffer]) -> None:
    """Carry out every row on one tensor of all ranks' chunks, each as long as the longest.

    Args:
        algorithm: the program.
        moves: what is read and written in each row; see `moves_of`.
        buffers: of every rank, all of one chunking; get the results.
    """
    num_ranks, num_scratch = len(buffers), algorithm.num_scratch_chunks(len(buffers))
    first = buffers[0]
    chunking: Any = first.chunking
    parts, part = chunking.num_parts, -(-chunking.count // chunking.num_parts)
    in_part = chunking.num_chunks // parts
    chunk = -(-part // in_part)
    chunks = first.data.new_zeros((num_ranks, chunking.num_chunks + num_scratch, chunk))
    whole = chunks[:, : chunking.num_chunks].reshape(num_ranks, parts, in_part * chunk)
    for rank, buffer in buffers.items():
        whole[rank, :, :part] = buffer.data.view(parts, part)

    chunks[:, : chunking.num_chunks] = whole.view(num_ranks, chunking.num_chunks, chunk)

    for row in moves:
        read = [chunks[move.of] for move in row]
        for move, incoming in zip(row, read, strict=True):
            if move.reduces:
                target = chunks[move.to]
                first.reduce(target, incoming)
                incoming = target
            chunks[move.to] = incoming

    whole = chunks[:, : chunking.num_chunks].reshape(num_ranks, parts, in_part * chunk)
    for rank, buffer in buffers.items():
        buffer.data.view(parts, part).copy_(whole[rank, :, :part])


@lru_cache(maxsize=8)
def _moves(program: ProgramKey, num_ranks: int, chunking: Chunking) -> Sequence[Sequence[Move]] | None:
    rows = []
    try:
        for row, pattern in patterned_rows(program.algorithm, num_ranks):
            pattern.nbytes(row, chunking)
            rows.append(tuple(_moves_in(row, pattern, num_ranks)))
    except NotExactError:
        return None
    return rows


def _moves_in(row: Step, pattern: Pattern, num_ranks: int) -> Iterator[Move]:
    """Yield the moves of *row* in the order in which they are written."""
    sent = np.zeros((len(pattern.source), 2), dtype=np.int64)
    for operation, ranks, messages in pattern.sent(row):
        sent[messages, 0] = ranks
        sent[messages, 1] = over_ranks(operation.chunk, num_ranks)[ranks]

    received = {position: (ranks, messages) for position, ranks, messages in pattern.received()}
    for position, operation in enumerate(row):
        if isinstance(operation, Send):
            continue
        chunk = over_ranks(operation.chunk, num_ranks)
        if isinstance(operation, Local):
            ranks = np.flatnonzero(over_ranks(operation.when, num_ranks))
            sources, starts = ranks, over_ranks(operation.source, num_ranks)[ranks]
        else:
            ranks, messages = received[position]
            sources, starts = sent[messages].T

        lengths = over_ranks(operation.num_chunks, num_ranks)[ranks]
        for length in np.unique(lengths).tolist():
            some = lengths == length
            yield Move(
                to=_range(ranks[some], chunk[ranks][some], length),
                of=_range(sources[some], starts[some], length),
                reduces=operation.reduces,
            )


def _range(ranks: Int64Array, chunks: Int64Array, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices of *length* chunks of each of *ranks*."""
    each = chunks[:, None] + np.arange(length)
    return torch.from_numpy(ranks[:, None].copy()), torch.from_numpy(each)
