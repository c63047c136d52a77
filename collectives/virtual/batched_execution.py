"""Batched execution: a collective of rank threads carried out for all of them at once, row by row.

Rank by rank, a ring of 256 ranks is 130,000 messages, each with a task, an event and a copy of its own.
Here the times come from a `collectives.timing.rows.row_execution`, which sends the same messages over
the same network, and the data from the same steps, row by row on one tensor that holds all ranks' buffers.
It takes ``ddp-256`` of ``benchmarks/virtual_cluster.py`` from 53 s of CPU to 6.7 s, ``fsdp2-64`` from 17 s to
7.8 s; with fewer than 16 ranks it saves nothing.
Both give what rank by rank gives, the times to the picosecond and the results to the bit
(``tests/collectives/virtual/test_batched_execution.py``).

It is used where no rank is through before all have begun, so that all buffers are there when the first needs
its result: collectives after which every rank has something of every other.  Ranks come to it one by one,
each at its time.  Programs whose sends and receives do not match row by row, buffers that are large
(then copying is what costs), runs in which ranks die, links change or messages are late, and transports that
go on only when a rank calls or await sends late go rank by rank.

Of data, chunks of all ranks are read, and written or reduced into, by index in each row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import simpy
import torch

from collectives.errors import NotExactError
from collectives.execution.blame import spell_ranks
from collectives.execution.execute import execute
from collectives.execution.transport import Execution, Poster
from collectives.program import Algorithm, Local, Send, Step
from collectives.program.chunking import Buffer, Chunking
from collectives.program.program_key import ProgramKey
from collectives.timing.ranks.meeting_point import MeetingPoint
from collectives.timing.ranks.simulated_port import SimulatedPort
from collectives.timing.rows.pattern import Pattern, over_ranks, patterned_rows
from collectives.timing.rows.row_execution import RowExecution, rows_follow
from collectives.virtual.progress import MIN_RANKS, TOGETHER
from collectives.virtual.transport import SimulatedTransport
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


class BatchedExecutions:
    """The collectives of one group that are carried out for all its ranks at once."""

    def __init__(self, meeting_point: MeetingPoint) -> None:
        self._meeting_point = meeting_point
        self._in_flight: dict[int, BatchedExecution] = {}

    def carry_out(
        self, algorithm: Algorithm, buffer: Buffer, transport: Poster, fingerprint: int
    ) -> Execution:
        """Yield what is to be waited for until this rank is through; as `execute`."""
        assert isinstance(transport, SimulatedTransport)
        moves = _moves_of(algorithm, buffer, self._meeting_point)
        if moves is None:
            yield from execute(algorithm, buffer, transport, fingerprint)
            return

        port = transport.port(fingerprint)
        batched = self._in_flight.get(fingerprint)
        if batched is None:
            sent = port.program.wire or buffer
            batched = BatchedExecution(self._meeting_point, algorithm, sent.chunking, moves, port)
            self._in_flight[fingerprint] = batched
        yield batched.join(transport.rank, buffer, port)
        if batched.is_over:
            self._in_flight.pop(fingerprint, None)


class BatchedExecution:
    """One call of one collective by all ranks of a group."""

    def __init__(
        self,
        meeting_point: MeetingPoint,
        algorithm: Algorithm,
        chunking: Any,
        moves: Sequence[Sequence[Move]],
        port: SimulatedPort,
    ) -> None:
        self.is_over = False
        self._env = meeting_point.network.env
        self._moves = moves
        self._num_ranks = len(meeting_point.hosts)
        self._algorithm = algorithm
        self._buffers: dict[int, Buffer] = {}
        self._done = [simpy.Event(self._env) for _ in meeting_point.hosts]
        self._num_through = 0
        self._coming: list[int] = []
        self._hosts = hosts = np.array(meeting_point.hosts)
        self._execution = RowExecution(
            meeting_point.network, hosts, algorithm, chunking, port.program.overheads, self._finish
        )

    def join(self, rank: int, buffer: Buffer, port: SimulatedPort) -> simpy.Event:
        """Let *rank* begin now; the event fires when it is through."""
        self._buffers[rank] = buffer
        port.progress = self._doing
        if not self._coming:
            self._env.timeout(0).callbacks.append(self._begin)
        self._coming.append(rank)
        return self._done[rank]

    def _begin(self, _: simpy.Event) -> None:
        """Let those that have come at this instant begin together."""
        ranks, self._coming = np.array(sorted(self._coming)), []
        self._execution.begin(ranks)

    def _finish(self, ranks: Int64Array) -> None:
        """Let *ranks* go on; before the first does, put all results in place."""
        if not self._num_through:
            carry_out(self._algorithm, self._moves, self._buffers)
        self._num_through += len(ranks)
        self.is_over = self._num_through == self._num_ranks
        for rank in ranks.tolist():
            self._done[rank].succeed()

    def _doing(self) -> str:
        absent = sorted(set(range(self._num_ranks)) - self._buffers.keys())
        if not absent:
            return "messages under way"
        return f"waits for {spell_ranks(self._hosts[absent].tolist())} to call"


def _moves_of(
    algorithm: Algorithm, buffer: Buffer, meeting_point: MeetingPoint
) -> Sequence[Sequence[Move]] | None:
    """Return what a collective reads and writes in each row, or None if it is to go rank by rank."""
    num_ranks = len(meeting_point.hosts)
    if (
        not meeting_point.is_calm
        or meeting_point.transport_model.progress == "calls"
        or not rows_follow(meeting_point.transport_model, meeting_point.rank_overhead)
        or algorithm.collective not in TOGETHER
        or num_ranks < MIN_RANKS
    ):
        return None
    return moves_of(algorithm, buffer.chunking, num_ranks)
