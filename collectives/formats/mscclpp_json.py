"""A program as an execution plan of MSCCL++, whose messages are writes into another rank's memory.

A message is four operations: the receiver signals that its chunks may be written, the sender waits for
that, puts, and signals back, the receiver waits for that.  What is to be reduced in is put into scratch
of the receiver and reduced there.  The two signals of a direction have a channel of their own, so they
are never taken for those of the other direction.

A rank's operations are one sequence.  It is cut where a thread block would have too many operations,
channels or remote buffers, and the next thread block goes on when a semaphore says that the one before it
is done.  So one thread block works at a time: right, but not how a plan gets fast (see
``docs/exchange.md``).

Sources: ``src/core/executor/execution_plan.cc``, ``src/core/include/execution_common.hpp`` and
``src/core/include/execution_kernel.hpp`` of microsoft/mscclpp for the fields, the limits and what the kernel
does, and the plans in ``test/executor-tests``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any

from collectives.errors import NotSupportedError
from collectives.formats.lowering import BufferPlace, BufferSpan, Lowered, LoweredMessage, LoweredStep, lower
from collectives.program import Algorithm

MAX_OPERATIONS = 64
MAX_CHANNELS = 16
MAX_CHANNELS_PER_OPERATION = 8
MAX_SEMAPHORES = 16
MAX_REDUCED_AT_ONCE = 9

REDUCTIONS = ("sum", "min", "max")

Connection = tuple[int, int]
"""Sender and receiver."""


def to_mscclpp_json(algorithm: Algorithm, world_size: int, *, reduction: str = "sum") -> dict[str, Any]:
    """Return *algorithm* for *world_size* ranks as a plan, ready for ``json.dumps``.

    Args:
        algorithm: what to export; it is proved first.
        world_size: number of ranks; a plan is for one only.
        reduction: ``sum``, ``min`` or ``max``.

    Raises:
        NotSupportedError: a plan cannot hold it; the message says why.
        ProgramError: the program is wrong.
        ValueError: MSCCL++ has no such reduction.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")
    lowered = lower(algorithm, world_size, "an MSCCL++ plan")
    staged, scratch_chunks = _stages(lowered)
    rounds = _rounds(lowered)
    channels = _channels(lowered)
    gpus = []

    for rank, steps in enumerate(lowered.ranks):
        sequence = _Sequence(rank, staged, rounds, reduction)
        for step in steps:
            sequence.add(step)
        blocks = list(_blocks(sequence.operations))
        if len(blocks) - 1 > MAX_SEMAPHORES:
            raise NotSupportedError(
                f"{lowered.algorithm}, {world_size} ranks: rank {rank} takes {len(sequence.operations)} "
                f"operations, {len(blocks)} thread blocks of at most {MAX_OPERATIONS} operations and "
                f"{MAX_CHANNELS} channels each; the {MAX_SEMAPHORES} semaphores of MSCCL++ keep "
                f"{MAX_SEMAPHORES + 1} in order; use fewer ranks, or an algorithm with fewer messages"
            )
        gpus.append(_gpu(rank, lowered, blocks, channels[rank], scratch_chunks))

    return {
        "name": lowered.algorithm,
        "collective": lowered.collective,
        "protocol": "Simple",
        "inplace": lowered.in_place,
        "reuse_resources": False,
        "gpus": gpus,
        "num_threads_per_block": 1024,
        "use_double_scratch_buffer": False,
        "buffer_alignment": 16,
        "min_message_size": 0,
        "max_message_size": 2**64 - 1,
    }


@dataclass(frozen=True, slots=True)
class _Operation:
    """An operation, with connections and remote buffers not yet numbered as a thread block does.

    *target* is of rank *remote* where that is given.
    """

    name: str
    connections: tuple[Connection, ...] = ()
    sources: tuple[BufferSpan, ...] = ()
    target: BufferSpan | None = None
    remote: int | None = None
    semaphore: int | None = None
    reduction: str | None = None


@dataclass(slots=True)
class _Sequence:
    """The operations of a rank; threads are brought together (``nop``) where one needs another's work."""

    rank: int
    staged: Mapping[LoweredMessage, BufferSpan]
    rounds: Mapping[LoweredMessage, int]
    reduction: str
    operations: list[_Operation] = field(default_factory=list)
    read: set[BufferPlace] = field(default_factory=set)
    written: set[BufferPlace] = field(default_factory=set)
    has_waited: bool = False

    def add(self, step: LoweredStep) -> None:
        """Add a step: moves; leave to write; sends and waits, in the order in which messages complete."""
        for (target, reduces), moves in groupby(step.moves, key=lambda move: (move.target, move.reduces)):
            sources = [move.source for move in moves]
            if reduces:
                self.reduce(target, sources)
            else:
                self.move("copy", (sources[-1],), target)

        self.synchronise("signal", [(message.sender, self.rank) for message in step.receives])

        for number in sorted({self.rounds[message] for message in [*step.sends, *step.receives]}):
            sends = [message for message in step.sends if self.rounds[message] == number]
            connections = [(self.rank, message.receiver) for message in sends]
            self.synchronise("wait", connections)
            for message in sends:
                target = self.staged.get(message, message.target)
                self.move("put", (message.source,), target, remote=message.receiver)
            self.synchronise("signal", connections)
            arriving = [message for message in step.receives if self.rounds[message] == number]
            self.synchronise("wait", [(message.sender, self.rank) for message in arriving])

        together: defaultdict[BufferSpan, list[BufferSpan]] = defaultdict(list)

        for message in step.receives:
            if message.reduces:
                together[message.target].append(self.staged[message])

        for target, sources in together.items():
            self.reduce(target, sources)

    def reduce(self, target: BufferSpan, sources: list[BufferSpan]) -> None:
        """Reduce *sources* into *target*."""
        for start in range(0, len(sources), MAX_REDUCED_AT_ONCE):
            several = tuple(sources[start : start + MAX_REDUCED_AT_ONCE])
            self.move("re", (target, *several), target, reduction=self.reduction)

    def move(
        self,
        name: str,
        sources: tuple[BufferSpan, ...],
        target: BufferSpan,
        *,
        remote: int | None = None,
        reduction: str | None = None,
    ) -> None:
        """Add an operation on data, after what it must not overtake."""
        reads = {place for source in sources for place in source.places()}
        writes = set(target.places()) if remote is None else set()
        if self.has_waited or reads & self.written or writes & (self.read | self.written):
            self.bring_together()
        self.read |= reads
        self.written |= writes
        self.operations.append(
            _Operation(name, sources=sources, target=target, remote=remote, reduction=reduction)
        )

    def synchronise(self, name: str, connections: list[Connection]) -> None:
        """Add signals, or waits, on *connections*: each operation has a connection once."""
        left = list(connections)
        while left:
            if name == "signal" and (self.has_waited or self.read or self.written):
                self.bring_together()
            several = tuple(islice(dict.fromkeys(left), MAX_CHANNELS_PER_OPERATION))
            for connection in several:
                left.remove(connection)
            self.operations.append(_Operation(name, several))
            self.has_waited = self.has_waited or name == "wait"

    def bring_together(self) -> None:
        """Let all threads get here before one goes on."""
        self.operations.append(_Operation("nop"))
        self.read, self.written, self.has_waited = set(), set(), False


def _stages(lowered: Lowered) -> tuple[dict[LoweredMessage, BufferSpan], int]:
    """Return where in the receiver's scratch the messages to be reduced are put, and how much there is."""
    staged: dict[LoweredMessage, BufferSpan] = {}
    scratch_chunks = lowered.scratch_chunks
    for steps in lowered.ranks:
        for step in steps:
            place = lowered.scratch_chunks
            for message in step.receives:
                if message.reduces:
                    staged[message] = BufferSpan("s", place, message.target.length)
                    place += message.target.length
            scratch_chunks = max(scratch_chunks, place)
    return staged, scratch_chunks


def _rounds(lowered: Lowered) -> dict[LoweredMessage, int]:
    """Return in which round each message completes when ranks go on as soon as their step has.

    A rank that serves the messages of a step round by round never keeps one waiting that a later one of
    the same step depends on.
    """
    rounds: dict[LoweredMessage, int] = {}
    position = [0] * len(lowered.ranks)
    number = 0

    while True:
        here = [
            steps[at] if at < len(steps) else LoweredStep()
            for at, steps in zip(position, lowered.ranks, strict=True)
        ]
        posted = {message for step in here for message in step.receives}
        complete = [
            message for step in here for message in step.sends if message in posted and message not in rounds
        ]
        rounds.update(dict.fromkeys(complete, number))
        number += 1
        moved = bool(complete)
        for rank, step in enumerate(here):
            done = all(message in rounds for message in [*step.sends, *step.receives])
            if position[rank] < len(lowered.ranks[rank]) and done:
                position[rank] += 1
                moved = True
        if not moved:
            return rounds


def _channels(lowered: Lowered) -> list[list[Connection]]:
    """Return the channels of each rank: both ranks of a pair list what is between them in one order."""
    used = {
        (message.sender, message.receiver)
        for steps in lowered.ranks
        for step in steps
        for message in step.sends
    }
    return [
        sorted(connection for connection in used if rank in connection) for rank in range(len(lowered.ranks))
    ]


def _blocks(operations: Iterable[_Operation]) -> Iterator[list[_Operation]]:
    """Yield the operations of each thread block: as many as fit, then leave to the next one to go on."""
    around = 4  # at most: acquire and nop before, nop and release after
    block: list[_Operation] = []
    number = 0
    for operation in operations:
        if len(block) + 1 > MAX_OPERATIONS - around or not _fits([*block, operation]):
            yield _after(number, [*block, _Operation("nop"), _Operation("sem_release", semaphore=number)])
            block = []
            number += 1
        block.append(operation)
    yield _after(number, block)


def _after(number: int, block: list[_Operation]) -> list[_Operation]:
    """Return *block*, thread block *number*, waiting for the one before it."""
    if number == 0:
        return block
    return [_Operation("sem_acquire", semaphore=number - 1), _Operation("nop"), *block]


def _fits(block: list[_Operation]) -> bool:
    connections = {connection for operation in block for connection in operation.connections}
    return len(connections) <= MAX_CHANNELS and len(_remote_buffers(block)) <= MAX_CHANNELS


def _remote_buffers(block: Iterable[_Operation]) -> list[tuple[int, str]]:
    """Return the buffers of other ranks that are written, in the order of first use."""
    found = ((op.remote, op.target.buffer) for op in block if op.remote is not None and op.target is not None)
    return list(dict.fromkeys(found))


def _gpu(
    rank: int,
    lowered: Lowered,
    blocks: list[list[_Operation]],
    channels: list[Connection],
    scratch_chunks: int,
) -> dict[str, Any]:
    remote = _remote_buffers(operation for block in blocks for operation in block)
    peers = [receiver if sender == rank else sender for sender, receiver in channels]
    return {
        "id": rank,
        "input_chunks": lowered.input_chunks,
        "output_chunks": lowered.output_chunks,
        "scratch_chunks": scratch_chunks,
        "threadblocks": [
            _thread_block(number, block, channels, remote) for number, block in enumerate(blocks)
        ],
        "channels": [{"channel_type": "memory", "connected_to": peers}] if peers else [],
        "remote_buffers": [
            {"rank": owner, "type": buffer, "access_channel_types": ["memory"]} for owner, buffer in remote
        ],
        "semaphores": [{"init_value": 0} for _ in blocks[1:]],
    }


def _thread_block(
    number: int, block: list[_Operation], channels: list[Connection], remote: list[tuple[int, str]]
) -> dict[str, Any]:
    """Return a thread block, in which channels and remote buffers have numbers of its own."""
    connections = list(dict.fromkeys(c for operation in block for c in operation.connections))
    buffers = _remote_buffers(block)
    return {
        "id": number,
        "ops": [_spell(operation, connections, buffers) for operation in block],
        "channels": [{"channel_type": "memory", "channel_ids": [channels.index(c) for c in connections]}]
        if connections
        else [],
        "remote_buffer_refs": [
            {"access_channel_type": "memory", "remote_buffer_ids": [remote.index(b) for b in buffers]}
        ]
        if buffers
        else [],
    }


def _spell(
    operation: _Operation, connections: list[Connection], buffers: list[tuple[int, str]]
) -> dict[str, Any]:
    spelled: dict[str, Any] = {"name": operation.name}
    if operation.semaphore is not None:
        spelled["semaphore_ids"] = [operation.semaphore]
    if operation.target is not None:
        target = operation.target
        where: dict[str, Any] = {"type": target.buffer}
        if operation.remote is not None:
            where = {"buffer_id": buffers.index((operation.remote, target.buffer))}
        spelled["src_buff"] = [
            {"type": source.buffer, "index": source.start, "size": source.length}
            for source in operation.sources
        ]
        spelled["dst_buff"] = [{**where, "index": target.start, "size": target.length}]
    if operation.connections:
        spelled["channel_ids"] = [connections.index(connection) for connection in operation.connections]
    if operation.connections or operation.remote is not None:
        spelled["channel_type"] = "memory"
    if operation.reduction is not None:
        spelled["reduce_op"] = operation.reduction
    return spelled
