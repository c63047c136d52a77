"""Symbolic run: the programs of all ranks, run against each other without data.

The strictest transport there is: a send completes only when its receive has been posted, and
a step only when all its operations have.  What is left waiting at the end is a deadlock under
any transport that follows the rules of `collectives.program.program`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from collectives.errors import ProgramError
from collectives.execution.matching import Matching
from collectives.program import Algorithm, Local, Operation, Recv, RecvReduce, Send, Step
from collectives.program.contracts import Contract, Part, Place
from collectives.program.render import draw_around, spell_operation
from collectives.proof.contributions import Contents


@dataclass(slots=True)
class _Pending:
    """A step that a rank has posted and that is not complete."""

    step: Step
    number: int
    outstanding: int
    incoming: list[list[int] | None]


class _Side(NamedTuple):
    """One side of a message: an operation, its position in the step, and what it sends, if it does."""

    operation: Send | Recv | RecvReduce
    position: int
    values: list[int]


class SymbolicRun:
    """One run of *algorithm* on *world_size* ranks.

    Attributes:
        contents: the integers that say what a chunk holds.
        held: ``held[rank][chunk]``, what it holds now.
        steps: ``steps[rank]``, the steps that it has posted.
        depth: per rank, the longest chain of dependent messages that ends there.
        chunks_sent: per rank.
        num_messages: of all ranks together.
        matching: messages of which only one side is posted.
        last_write: ``last_write[rank][chunk]``, the step that last wrote it.
        first_spoiled: the step that first went wrong in a (rank, chunk).
    """

    def __init__(self, algorithm: Algorithm, world_size: int, contract: Contract, root: int) -> None:
        self.algorithm = algorithm
        self.world_size = world_size
        self.contract = contract
        self.root = root

        self.num_chunks = algorithm.num_chunks(world_size)
        if self.num_chunks < 1:
            raise self.error(f"it divides the buffer into {self.num_chunks} chunks; expected at least 1")
        num_parts = contract.num_parts(world_size)
        self.chunks_per_part, rest = divmod(self.num_chunks, num_parts)
        if rest:
            raise self.error(
                f"it divides the buffer into {self.num_chunks} chunks; expected a multiple of {num_parts}, "
                "as each rank has an equal part"
            )

        self.num_scratch = algorithm.num_scratch_chunks(world_size)
        self.contents = Contents(world_size)
        scratch = [self.contents.unknown(chunk % self.chunks_per_part) for chunk in range(self.num_scratch)]
        self.held = [
            [self._content(contract.before(place), place.chunk) for place in self.places(rank)] + scratch
            for rank in range(world_size)
        ]

        self.programs: list[Iterator[Step]] = [
            algorithm.steps(rank, world_size) for rank in range(world_size)
        ]
        self.pending: list[_Pending | None] = [None] * world_size
        self.steps: list[list[Step]] = [[] for _ in range(world_size)]

        self.depth = [0] * world_size
        self.next_depth = [0] * world_size
        self.chunks_sent = [0] * world_size
        self.num_messages = 0
        self.matching: Matching[_Side] = Matching()
        self.last_write: list[dict[int, int]] = [{} for _ in range(world_size)]
        self.first_spoiled: dict[tuple[int, int], int] = {}

    def places(self, rank: int) -> list[Place]:
        """Return all chunks of the buffer of *rank*."""
        return [
            Place(rank, chunk, self.world_size, self.num_chunks, self.root)
            for chunk in range(self.num_chunks)
        ]

    def _content(self, part: Part | None, chunk: int) -> int:
        return self.contents.unknown(chunk) if part is None else self.contents.of(*part)

    def finish(self) -> None:
        """Run all programs to their end, or raise."""
        ready = deque(range(self.world_size))
        while ready:
            ready.extend(self.advance(ready.popleft()))
        if any(self.pending):
            raise self.deadlock()

    def advance(self, rank: int) -> list[int]:
        """Post this rank's next step that has messages; return the ranks that can go on."""
        while (step := self.next_step(rank)) is not None:
            number = len(self.steps[rank])
            self.check_step(rank, number, step)
            self.steps[rank].append(step)

            # The last message posted may complete the step, so what it reads by itself is read before.
            incoming = [
                self.read(rank, op.source, op.num_chunks) if isinstance(op, Local) else None for op in step
            ]
            pending = _Pending(step, number, incoming.count(None), incoming)
            self.pending[rank] = pending

            completed = [
                other
                for position, operation in enumerate(step)
                if not isinstance(operation, Local)
                for other in self.post(rank, position, operation)
            ]
            if not pending.outstanding and rank not in completed:
                self.complete(rank)
                if step:
                    return [*completed, rank]
                continue
            return completed
        return []

    def next_step(self, rank: int) -> Step | None:
        """Return this rank's next step, or None at the end of its program."""
        return next(self.programs[rank], None)

    def post(self, rank: int, position: int, operation: Send | Recv | RecvReduce) -> list[int]:
        """Post one side of a message; return the ranks whose step it completes."""
        sends = isinstance(operation, Send)
        values = self.read(rank, operation.chunk, operation.num_chunks) if sends else []
        met = self.matching.post(rank, operation, 0, _Side(operation, position, values))
        return [] if met is None else self.deliver(*met)

    def read(self, rank: int, chunk: int, num_chunks: int) -> list[int]:
        """Return what a range of chunks holds now."""
        return self.held[rank][chunk : chunk + num_chunks]

    def deliver(self, sent: _Side, received: _Side) -> list[int]:
        """Deliver a message of which both sides are posted; return the ranks whose step it completes."""
        send, receive = sent.operation, received.operation
        source, destination = receive.peer, send.peer
        sender, receiver = self.pending[source], self.pending[destination]
        assert sender is not None
        assert receiver is not None
        moved = self.problem_of_move(send.chunk, receive.chunk)
        if moved or send.num_chunks != receive.num_chunks:
            raise self.error(
                f"the two sides of a message differ in {'the chunks' if moved else 'length'}\n"
                f"  rank {source}, step {sender.number}: {spell_operation(send)}\n"
                f"  rank {destination}, step {receiver.number}: {spell_operation(receive)}"
                + (f"\n  {moved}" if moved else ""),
                at=(destination, receiver.number),
            )

        receiver.incoming[received.position] = sent.values
        self.num_messages += 1
        self.chunks_sent[source] += send.num_chunks
        depth = 1 + max(self.depth[source], self.depth[destination])

        completed = []
        for rank, pending in ((source, sender), (destination, receiver)):
            self.next_depth[rank] = max(self.next_depth[rank], depth)
            pending.outstanding -= 1
            if not pending.outstanding:
                completed.append(rank)
        for rank in completed:
            self.complete(rank)
        return completed

    def complete(self, rank: int) -> None:
        """Let the writes of this rank's step land, in the order listed."""
        pending = self.pending[rank]
        assert pending is not None
        held, last_write = self.held[rank], self.last_write[rank]
        for operation, values in zip(pending.step, pending.incoming, strict=True):
            for chunk, value in enumerate(values or (), operation.chunk):
                new = self.contents.reduce(held[chunk], value) if operation.reduces else value
                if self.contents.spoiled(new):
                    self.first_spoiled.setdefault((rank, chunk), pending.number)
                held[chunk] = new
                last_write[chunk] = pending.number
        self.pending[rank] = None
        self.depth[rank] = self.next_depth[rank]

    def check_step(self, rank: int, number: int, step: Step) -> None:
        """Check ranges, peers and conflicts of one step by itself."""
        written: dict[int, Operation] = {}
        for operation in step:
            problem = self.problem_of(rank, operation) or _conflict(operation, written)
            if problem:
                said = f"rank {rank}, step {number}: {problem}\n  {spell_operation(operation)}"
                raise self.error(said, at=(rank, number))

    def problem_of(self, rank: int, operation: Operation) -> str:
        """Return what is wrong with an operation of *rank* by itself, if anything."""
        if isinstance(operation, Local):
            return (
                self.problem_of_move(operation.source, operation.chunk)
                or self.problem_of_range(operation.chunk, operation.num_chunks)
                or self.problem_of_range(operation.source, operation.num_chunks)
            )
        if not 0 <= operation.peer < self.world_size:
            return f"there is no rank {operation.peer}"
        if operation.peer == rank:
            return "a rank cannot be its own peer; use Copy or Reduce"
        return self.problem_of_range(operation.chunk, operation.num_chunks)

    def problem_of_range(self, chunk: int, num_chunks: int) -> str:
        """Return what is wrong with *num_chunks* chunks from *chunk* on, if anything."""
        scratch, end = self.num_chunks, self.num_chunks + self.num_scratch
        if num_chunks < 1:
            return f"num_chunks must be at least 1, got {num_chunks}"
        if chunk < 0 or chunk + num_chunks > end:
            also = f", and scratch chunks {scratch} to {end - 1}" if self.num_scratch else ""
            return f"out of range, the buffer has chunks 0 to {scratch - 1}{also}"
        if chunk < scratch < chunk + num_chunks:
            return (
                f"half in the buffer, half in scratch, which begins with chunk {scratch}; use two operations"
            )
        return ""

    def problem_of_move(self, source: int, chunk: int) -> str:
        """Return what is wrong with moving chunk *source* to *chunk*, if anything."""
        if (source - chunk) % self.chunks_per_part == 0:
            return ""
        last = "the last of each part" if self.contract.equal_parts else "the last"
        return f"chunk {source} may not go to chunk {chunk}, as {last} may be shorter than others"

    def deadlock(self) -> ProgramError:
        """Return the error that says which ranks wait for what."""
        open_operations: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
        for rank, side in self.matching.waiting():
            open_operations[rank].append((side.position, spell_operation(side.operation)))
        waiting = [(rank, pending.number) for rank, pending in enumerate(self.pending) if pending]
        lines = [f"deadlock, {len(waiting)} of {self.world_size} ranks wait for messages nobody posts"]
        for rank, step in waiting[:8]:
            texts = [text for _, text in sorted(open_operations[rank])]
            more = f", … and {len(texts) - 3} more" if len(texts) > 3 else ""
            lines.append(f"  rank {rank}, step {step}: {', '.join(texts[:3])}{more}")
        if len(waiting) > 8:
            lines.append(f"  … and {len(waiting) - 8} more ranks")
        return self.error("\n".join(lines), at=waiting[0])

    def error(self, text: str, at: tuple[int, int] | None = None, *, marked: bool = True) -> ProgramError:
        """Return an error that names algorithm and world size, with the grid around *at*."""
        message = f"{self.algorithm}, {self.contract.name}, world size {self.world_size}: {text}"
        if at is not None:
            message += "\n" + draw_around(self.algorithm, self.world_size, *at, marked=marked)
        return ProgramError(message)


def _conflict(operation: Operation, written: dict[int, Operation]) -> str:
    """Return which other write of the step is in the way of *operation*, and note its own.

    *written* says which operation of the step writes which chunk.
    """
    if not isinstance(operation, Send):
        for chunk in range(operation.chunk, operation.chunk + operation.num_chunks):
            if chunk in written and not (written[chunk].reduces and operation.reduces):
                return f"chunk {chunk} is also written by {spell_operation(written[chunk])}"
            written.setdefault(chunk, operation)
    return ""
