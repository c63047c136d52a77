"""All ranks' programs, run against each other over symbolic contents.

The strictest transport there is: a send completes only when its receive has been posted, and
a step only when all its operations have.  What is left waiting at the end is a deadlock under
any transport that follows the rules of `collectives.program`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from collectives.contents import Contents
from collectives.contracts import Contract, Part, Place
from collectives.errors import NotSupportedError, ProgramError
from collectives.program import Algorithm, Local, Operation, Recv, RecvReduce, Send, Step
from collectives.render import draw_around, spell_operation


@dataclass(slots=True)
class _Pending:
    """A step that a rank has posted and that is not complete."""

    step: Step
    number: int
    outstanding: int
    incoming: dict[int, list[int]]


class SymbolicRun:
    """One run of *algorithm* on *world_size* ranks.

    Attributes:
        contents: the integers that say what a chunk holds.
        held: ``held[rank][chunk]``, what it holds now.
        depth: per rank, the longest chain of dependent messages that ends there.
        chunks_sent: per rank.
        num_messages: of all ranks together.
        last_write: the step that last wrote a (rank, chunk).
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
        num_parts = world_size if contract.equal_parts else 1
        self.chunks_per_part, rest = divmod(self.num_chunks, num_parts)
        if rest:
            raise self.error(
                f"it divides {num_parts} parts into {self.num_chunks} chunks; expected a multiple"
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
        self.num_steps_done = [0] * world_size
        self.depth = [0] * world_size
        self.next_depth = [0] * world_size
        self.chunks_sent = [0] * world_size
        self.num_messages = 0
        self.sends: defaultdict[tuple[int, int], deque[tuple[Operation, list[int]]]] = defaultdict(deque)
        self.receives: defaultdict[tuple[int, int], deque[tuple[Operation, int]]] = defaultdict(deque)
        self.last_write: dict[tuple[int, int], int] = {}
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
            number = self.num_steps_done[rank]
            self.check_step(rank, number, step)
            messages = [(n, op) for n, op in enumerate(step) if not isinstance(op, Local)]
            # The last message posted may complete the step, so what it reads by itself is read before.
            read = {
                n: self.read(rank, op.source, op.num_chunks)
                for n, op in enumerate(step)
                if isinstance(op, Local)
            }
            pending = _Pending(step, number, len(messages), read)
            self.pending[rank] = pending
            completed = [other for n, op in messages for other in self.post(rank, n, op)]
            if not pending.outstanding and rank not in completed:
                self.complete(rank)
                if step:
                    return [*completed, rank]
                continue
            return completed
        return []

    def next_step(self, rank: int) -> Step | None:
        """Return this rank's next step, or None at the end of its program."""
        try:
            return next(self.programs[rank], None)
        except (NotSupportedError, ProgramError):
            raise
        except Exception as error:
            where = f"rank {rank}, step {self.num_steps_done[rank]}"
            raise self.error(f"{where}: the program raised {type(error).__name__}: {error}") from error

    def post(self, rank: int, position: int, operation: Send | Recv | RecvReduce) -> list[int]:
        """Post one side of a message; return the ranks whose step it completes."""
        peer = operation.peer
        if isinstance(operation, Send):
            values = self.read(rank, operation.chunk, operation.num_chunks)
            self.sends[rank, peer].append((operation, values))
            pair = (rank, peer)
        else:
            self.receives[peer, rank].append((operation, position))
            pair = (peer, rank)
        return self.match(*pair)

    def read(self, rank: int, chunk: int, num_chunks: int) -> list[int]:
        """Return what a range of chunks holds now."""
        return [self.held[rank][each] for each in _chunks(chunk, num_chunks)]

    def match(self, source: int, destination: int) -> list[int]:
        """Deliver the next message from *source* to *destination* if both sides have posted it."""
        sends, receives = self.sends[source, destination], self.receives[source, destination]
        if not sends or not receives:
            return []
        (send, values), (receive, position) = sends.popleft(), receives.popleft()
        sender, receiver = self.pending[source], self.pending[destination]
        assert sender is not None
        assert receiver is not None
        moved = self.is_moved(send.chunk, receive.chunk)
        if send.num_chunks != receive.num_chunks or moved:
            what = "the chunks, of which the last may be shorter" if moved else "length"
            raise self.error(
                f"the two sides of a message differ in {what}\n"
                f"  rank {source}, step {sender.number}: {spell_operation(send)}\n"
                f"  rank {destination}, step {receiver.number}: {spell_operation(receive)}",
                at=(destination, receiver.number),
            )
        receiver.incoming[position] = values
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
        held = self.held[rank]
        for position, values in sorted(pending.incoming.items()):
            operation = pending.step[position]
            for chunk, value in zip(_chunks(operation.chunk, operation.num_chunks), values, strict=True):
                held[chunk] = self.contents.reduce(held[chunk], value) if operation.reduces else value
                if self.contents.spoiled(held[chunk]):
                    self.first_spoiled.setdefault((rank, chunk), pending.number)
                self.last_write[rank, chunk] = pending.number
        self.pending[rank] = None
        self.depth[rank] = self.next_depth[rank]
        self.num_steps_done[rank] += 1

    def check_step(self, rank: int, number: int, step: Step) -> None:
        """Check ranges, peers and conflicts of one step by itself."""
        written: dict[int, Operation] = {}
        for operation in step:
            where = f"rank {rank}, step {number}: {spell_operation(operation)}"
            ranges = [_chunks(operation.chunk, operation.num_chunks)]
            if isinstance(operation, Local):
                ranges.append(_chunks(operation.source, operation.num_chunks))
                if self.is_moved(operation.source, operation.chunk):
                    moves = "moves chunks, of which the last may be shorter"
                    raise self.error(f"{where}: {moves}", at=(rank, number))
            elif not 0 <= operation.peer < self.world_size:
                raise self.error(f"{where}: there is no rank {operation.peer}", at=(rank, number))
            elif operation.peer == rank:
                raise self.error(
                    f"{where}: a rank cannot be its own peer; use Copy or Reduce", at=(rank, number)
                )
            for chunks in ranges:
                if problem := self.problem_of_range(chunks):
                    raise self.error(f"{where}: {problem}", at=(rank, number))
            if isinstance(operation, Send):
                continue
            for chunk in ranges[0]:
                other = written.setdefault(chunk, operation)
                if other is not operation and not (other.reduces and operation.reduces):
                    conflict = f"chunk {chunk} is also written by {spell_operation(other)} in this step"
                    raise self.error(f"{where}: {conflict}", at=(rank, number))

    def problem_of_range(self, chunks: range) -> str:
        """Return what is wrong with a range of chunks, if anything."""
        first, last = self.num_chunks, self.num_chunks + self.num_scratch - 1
        if not chunks or chunks.start < 0 or chunks.stop > last + 1:
            scratch = f", and scratch chunks {first} to {last}" if self.num_scratch else ""
            return f"out of range, the buffer has chunks 0 to {first - 1}{scratch}"
        if chunks.start < first < chunks.stop:
            return f"a range lies in the buffer or in scratch, which begins with chunk {first}"
        return ""

    def is_moved(self, source: int, chunk: int) -> bool:
        """Return whether chunks that start at *source* may be longer than those from *chunk* on."""
        return (source - chunk) % self.chunks_per_part != 0

    def deadlock(self) -> ProgramError:
        """Return the error that says which ranks wait for what."""
        open_operations: defaultdict[int, list[str]] = defaultdict(list)
        for (source, _), sends in self.sends.items():
            open_operations[source] += [spell_operation(operation) for operation, _ in sends]
        for (_, destination), receives in self.receives.items():
            open_operations[destination] += [spell_operation(operation) for operation, _ in receives]
        waiting = [(rank, pending.number) for rank, pending in enumerate(self.pending) if pending]
        lines = [f"deadlock, {len(waiting)} of {self.world_size} ranks wait for messages nobody posts"]
        lines += [
            f"  rank {rank}, step {step}: {', '.join(open_operations[rank])}" for rank, step in waiting[:8]
        ]
        if len(waiting) > 8:
            lines.append(f"  … and {len(waiting) - 8} more ranks")
        return self.error("\n".join(lines), at=waiting[0])

    def error(self, text: str, at: tuple[int, int] | None = None) -> ProgramError:
        """Return an error that names algorithm and world size, with the grid around *at*."""
        message = f"{self.algorithm}, {self.contract.name}, world size {self.world_size}: {text}"
        if at is not None:
            message += "\n" + draw_around(self.algorithm, self.world_size, *at)
        return ProgramError(message)


def _chunks(chunk: int, num_chunks: int) -> range:
    return range(chunk, chunk + num_chunks)
