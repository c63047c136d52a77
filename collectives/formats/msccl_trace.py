"""Run of the thread blocks of an MSCCL file against each other, without data.

Out comes what happens, message by message and move by move, in chunks of a program of ours, and what
must come before what.  On the way every thread block must get to its end, every message must be
received, and any two steps of a GPU that touch the same chunk must be ordered: by their thread block,
by ``depid`` or by messages.  Connections are taken to have room for any number of messages.

Chunks keep their place in the buffer of our program.  A chunk that stands anywhere else is in scratch
of its own, as long as it is; so a message arrives in chunks of the length of those that it left.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from collectives.errors import AlgorithmFileError
from collectives.formats.msccl_file import (
    READING,
    RECEIVING,
    SENDING,
    WRITING,
    MscclFile,
    MscclTransfer,
    ThreadBlock,
)
from collectives.program.contracts import CONTRACTS
from collectives.program.thread_blocks import Ends

MAX_CLOCK_ENTRIES = 1 << 28
"""Up to 1 GiB of them; a step that others wait for keeps one entry per thread block."""

_OF_FILE = 1 << 18
"""Added to the file's channels, so that no other program's connections are taken for these."""

_PASSED_ON = 1 << 17
"""Added to the channel of what is sent on in the step in which it is received."""

Clock: TypeAlias = npt.NDArray[np.int32]


class Slot(NamedTuple):
    """A chunk's place on a GPU: in our buffer (``b``), output (``o``), scratch (``s``) or beside (``t``)."""

    rank: int
    buffer: str
    chunk: int


@dataclass(slots=True, eq=False)
class Event:
    """A message from *sender* to *receiver*, or a local move where these are the same rank.

    *pairs* are chunks of our program, from where and to where; *after* are the events that come
    before, and by how many steps at least; *written* counts the events in the order in which they wrote.
    """

    line: int
    number: int
    sender: int
    receiver: int
    pairs: list[tuple[int, int]]
    reduces: bool = False
    channel: int = 0
    written: int = 0
    after: list[tuple[Event, int]] = field(default_factory=list)


@dataclass(slots=True)
class _InFlight:
    """A message that was sent, and what the sender had seen."""

    event: Event
    sender: int
    kinds: list[int]
    clock: Clock


@dataclass(slots=True)
class _Block:
    """A thread block under way; *clock* counts the steps of all thread blocks that are known done."""

    rank: int
    number: int
    block: ThreadBlock
    clock: Clock
    done: int = 0
    last_sent: Event | None = None
    announced: dict[int, Clock] = field(default_factory=dict)


@dataclass(slots=True)
class _Touched:
    """By which steps a slot was written and read, and which events did that to a chunk of ours."""

    writer: tuple[int, int, int] | None = None
    readers: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Order:
    last: Event | None = None
    readers: list[Event] = field(default_factory=list)


class MscclTrace:
    """The run of *file*; its results are `events`, `num_scratch` and, of connections, `ends`.

    A connection of the file is two of the program: one of messages that a thread block sends on in the step
    in which it receives them, and one of others.

    Raises:
        AlgorithmFileError: it deadlocks, a message is not received or does not fit, or two steps race.
    """

    def __init__(self, file: MscclFile) -> None:
        self.file = file
        self.num_chunks = file.num_chunks
        parts = len(file.gpus) if CONTRACTS[file.collective].equal_parts else 1
        if file.num_chunks % parts:
            raise AlgorithmFileError(
                f"{file.origin}: nchunksperloop is {file.num_chunks}; expected a multiple of ngpus, {parts}"
            )
        self.chunks_per_part = file.num_chunks // parts
        blocks = [(rank, block) for rank, gpu in enumerate(file.gpus) for block in gpu.blocks]
        kept = sum(step.is_awaited or step.type in SENDING for _, block in blocks for step in block.steps)

        if len(blocks) * (len(blocks) + kept) > MAX_CLOCK_ENTRIES:
            raise AlgorithmFileError(
                f"{file.origin}: {len(blocks)} thread blocks with {kept} steps that others wait for are more "
                "than can be followed"
            )

        self.blocks = [
            _Block(rank, number, block, np.zeros(len(blocks), dtype=np.int32))
            for number, (rank, block) in enumerate(blocks)
        ]
        self.first_block = [0] * len(file.gpus)

        for rank, gpu in enumerate(file.gpus[:-1]):
            self.first_block[rank + 1] = self.first_block[rank] + len(gpu.blocks)

        self.ends: dict[tuple[int, int, int], Ends] = {}
        self.connections: defaultdict[tuple[int, int, int], deque[_InFlight]] = defaultdict(deque)
        self.events: list[Event] = []
        self.num_writes = 0
        self.kinds: dict[Slot, int] = {}
        self.scratch: dict[tuple[Slot, int], int] = {}
        self.layers: Counter[tuple[int, int]] = Counter()
        self.touched: defaultdict[Slot, _Touched] = defaultdict(_Touched)
        self.order: defaultdict[tuple[int, int], _Order] = defaultdict(_Order)
        self.run()
        if not file.in_place:
            self.finish_out_of_place()
        self.num_scratch = self.chunks_per_part * max(self.layers.values(), default=0)

    def run(self) -> None:
        """Carry out all steps, or raise."""
        moved = True
        while moved:
            moved = False
            for block in self.blocks:
                while block.done < len(block.block.steps) and self.is_ready(block):
                    self.carry_out(block, block.block.steps[block.done])
                    block.done += 1
                    moved = True
        stuck = [block for block in self.blocks if block.done < len(block.block.steps)]
        if stuck:
            waiting = [self.describe_wait(block) for block in stuck[:8]]
            more = [f"  … and {len(stuck) - 8} more"] if len(stuck) > 8 else []
            raise AlgorithmFileError(
                "\n".join([f"{self.file.origin}: deadlock, {len(stuck)} thread blocks wait", *waiting, *more])
            )
        for (sender, receiver, _), queue in self.connections.items():
            if queue:
                line = queue[0].event.line
                raise self.file.error(line, f"GPU {receiver} never receives this message of GPU {sender}")

    def is_ready(self, block: _Block) -> bool:
        """Return whether what the next step of *block* waits for has happened."""
        step = block.block.steps[block.done]
        if step.wait_block >= 0 and self.announcement(block, step) is None:
            return False
        return step.type not in RECEIVING or bool(self.incoming(block))

    def announcement(self, block: _Block, step: MscclTransfer) -> Clock | None:
        """Return what was known when the step that *step* waits for, or one after it, was announced."""
        other = self.blocks[self.first_block[block.rank] + step.wait_block]
        return next((other.announced[n] for n in sorted(other.announced) if n >= step.wait_step), None)

    def incoming(self, block: _Block) -> deque[_InFlight]:
        """Return the messages on their way to *block*."""
        return self.connections[block.block.recv, block.rank, block.block.channel]

    def describe_wait(self, block: _Block) -> str:
        """Return the line of the error about a deadlock that tells of *block*."""
        step = block.block.steps[block.done]
        which = block.number - self.first_block[block.rank]
        reason = f"a message of GPU {block.block.recv}"
        if step.wait_block >= 0 and self.announcement(block, step) is None:
            reason = f"step {step.wait_step} of thread block {step.wait_block}"
        return f"  line {step.line}: GPU {block.rank}, thread block {which}, step {block.done}: {reason}"

    def carry_out(self, block: _Block, step: MscclTransfer) -> None:
        """Carry out the next step of *block*: wait, receive, move, send, announce."""
        if step.wait_block >= 0:
            known = self.announcement(block, step)
            assert known is not None
            np.maximum(block.clock, known, out=block.clock)
        received: _InFlight | None = None

        if step.type in RECEIVING:
            received = self.incoming(block).popleft()
            np.maximum(block.clock, received.clock, out=block.clock)
            if len(received.kinds) != step.count:
                raise self.file.error(
                    step.line,
                    f"receives {step.count} chunks of GPU {received.event.sender}, which sends "
                    f"{len(received.kinds)} (line {received.event.line})",
                )

        sources = self.slots(block.rank, step.source, step.source_chunk, step.count)
        targets = self.slots(block.rank, step.target, step.target_chunk, step.count)
        self.check_race(block, step, sources if step.type in READING else [], writes=False)
        self.check_race(block, step, targets if step.type in WRITING else [], writes=True)
        if step.type in ("cpy", "re"):
            self.move(step.line, sources, targets, reduces=step.type == "re")

        if received is not None and step.type in ("rrs", "rrc", "rrcs"):
            if step.type == "rrs":
                targets = [Slot(block.rank, "t", block.number << 20 | n) for n in range(step.count)]
            if sources != targets:
                self.move(step.line, sources, targets)
            self.receive(block, received, targets, reduces=True)
        elif received is not None:
            self.receive(block, received, targets)

        if step.type in SENDING:
            self.send(block, step, sources if step.type == "s" else targets)
        block.clock[block.number] = block.done + 1
        if step.is_awaited:
            block.announced[block.done] = block.clock.copy()

    def slots(self, rank: int, buffer: str, first: int, count: int) -> list[Slot]:
        """Return where *count* chunks of *buffer* are; in place, one of input and output is in the other."""
        collective, own = self.file.collective, rank * self.chunks_per_part
        if buffer == "i" and collective == "all_gather":
            buffer, first = "b", first + own
        elif buffer == "i":
            buffer = "b"
        elif buffer == "o" and self.file.in_place:
            buffer, first = "b", first + (own if collective == "reduce_scatter" else 0)
        return [Slot(rank, buffer, index) for index in range(first, first + count)]

    def check_race(self, block: _Block, step: MscclTransfer, slots: list[Slot], *, writes: bool) -> None:
        """Check that *step* is ordered with whoever touched *slots* before; then it has touched them."""
        me = block.number, block.done, step.line
        for slot in slots:
            touched = self.touched[slot]
            others = touched.readers if writes else []
            for other, number, line in others if touched.writer is None else [touched.writer, *others]:
                if other != block.number and block.clock[other] <= number:
                    buffer = {"b": "the buffer", "o": "the output", "s": "scratch"}[slot.buffer]
                    raise self.file.error(
                        step.line,
                        f"this step and that on line {line} touch chunk {slot.chunk} of {buffer} of GPU "
                        f"{block.rank}, and nothing orders them; depid and deps would",
                    )
            if writes:
                touched.writer, touched.readers = me, []
            else:
                touched.readers.append(me)

    def kind(self, slot: Slot) -> int:
        """Return the place in a part from which the chunk in *slot* is."""
        return self.kinds.get(slot, slot.chunk % self.chunks_per_part)

    def chunk(self, slot: Slot) -> int:
        """Return the chunk of our program that *slot* is, with what it holds now."""
        kind = self.kind(slot)
        if slot.buffer == "b" and kind == slot.chunk % self.chunks_per_part:
            return slot.chunk
        if (slot, kind) not in self.scratch:
            layer = self.layers[slot.rank, kind]
            self.layers[slot.rank, kind] += 1
            self.scratch[slot, kind] = self.num_chunks + layer * self.chunks_per_part + kind
        return self.scratch[slot, kind]

    def event(self, line: int, sender: int, receiver: int, *, reduces: bool = False) -> Event:
        """Return a new event, without its chunks."""
        event = Event(line, len(self.events), sender, receiver, [], reduces)
        self.events.append(event)
        return event

    def move(self, line: int, sources: list[Slot], targets: list[Slot], *, reduces: bool = False) -> None:
        """Copy or reduce *sources* into *targets* of the same GPU, chunk by chunk."""
        if not sources:
            return
        event = self.event(line, sources[0].rank, sources[0].rank, reduces=reduces)
        read = [self.read(event, source) for source in sources]
        kinds = [self.kind(source) for source in sources]
        written = self.write(event, targets, kinds, reduces=reduces)
        event.pairs = list(zip(read, written, strict=True))

    def send(self, block: _Block, step: MscclTransfer, sources: list[Slot]) -> None:
        """Send *sources*, after what was sent over this connection before."""
        event = self.event(step.line, block.rank, block.block.send)
        if block.last_sent is not None:
            event.after.append((block.last_sent, 1))
        block.last_sent = event
        event.channel = _OF_FILE + _PASSED_ON * (step.type in RECEIVING) + block.block.channel
        event.pairs = [(self.read(event, source), -1) for source in sources]
        kinds = [self.kind(source) for source in sources]
        connection = block.rank, block.block.send, block.block.channel
        block.clock[block.number] = block.done + 1
        self.connections[connection].append(_InFlight(event, block.number, kinds, block.clock.copy()))

    def receive(
        self, block: _Block, message: _InFlight, targets: list[Slot], *, reduces: bool = False
    ) -> None:
        """Write, or reduce, *message* into *targets* by *block*."""
        event = message.event
        sender = -1 if event.channel & _PASSED_ON else message.sender
        ends = Ends(event.channel % _PASSED_ON, sender, block.number)
        self.ends[event.sender, event.receiver, event.channel] = ends
        event.reduces = reduces
        written = self.write(event, targets, message.kinds, reduces=reduces)
        event.pairs = [(source, target) for (source, _), target in zip(event.pairs, written, strict=True)]

    def read(self, event: Event, slot: Slot) -> int:
        """Let *event* read *slot*, after what wrote it; return the chunk."""
        chunk = self.chunk(slot)
        order = self.order[slot.rank, chunk]
        if order.last is not None:
            event.after.append((order.last, 1))
        order.readers.append(event)
        return chunk

    def write(self, event: Event, slots: list[Slot], kinds: list[int], *, reduces: bool) -> list[int]:
        """Let *event* write *slots*, after what wrote them and no sooner than what read them."""
        chunks: list[int] = []
        self.num_writes += 1
        event.written = self.num_writes
        for slot, kind in zip(slots, kinds, strict=True):
            if not reduces:
                self.kinds[slot] = kind
            chunk = self.chunk(slot)
            order = self.order[slot.rank, chunk]
            if order.last is not None:
                # Two reductions may share a step, which applies them in the order of writing.
                together = reduces and order.last.reduces
                event.after.append((order.last, 0 if together else 1))
            event.after += [(reader, 0) for reader in order.readers if reader is not event]
            order.last, order.readers = event, []
            chunks.append(chunk)
        return chunks

    def finish_out_of_place(self) -> None:
        """Copy the output to where our programs leave it."""
        for rank in range(len(self.file.gpus)):
            first = rank * self.chunks_per_part if self.file.collective == "reduce_scatter" else 0
            outputs = sorted(slot for slot in self.kinds if (slot.rank, slot.buffer) == (rank, "o"))
            targets = [Slot(rank, "b", slot.chunk + first) for slot in outputs]
            self.move(self.file.gpus[rank].line, outputs, targets)
