"""Lowering of a program to what other runtimes have: spans of three buffers, and an order inside a step.

A step of ours is simultaneous, and works on one buffer.  Runtimes carry out one operation after
another, on an input and an output that may be the same memory:

* all-reduce and reduce-scatter work in the input, all-gather in the output, as these collectives do
  in place.  All-to-all is out of place: a chunk is read from the input until it is first written, and
  lives in the output from then on.
* Inside a step the local moves come first, in the order listed, then the messages.  What a step both
  reads and overwrites is copied to scratch before, and read from there.  So no message of a step
  waits for another in order to keep an old value, and what rendezvous does not deadlock, no amount of
  buffering does.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from collectives.errors import NotSupportedError
from collectives.program import Algorithm, Local, Operation, Send, Step
from collectives.proof import prove

COLLECTIVE_NAMES = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "all_to_all": "alltoall",
}
"""The collectives that both formats can express, and what they call them."""

MAX_CONNECTIONS = 4
"""From one rank to another: as many messages of one step need not wait for each other."""

_WORKS_IN = {"all_reduce": "i", "reduce_scatter": "i", "all_gather": "o", "all_to_all": "o"}


class BufferPlace(NamedTuple):
    """A chunk of buffer ``i`` (input), ``o`` (output) or ``s`` (scratch)."""

    buffer: str
    chunk: int


class BufferSpan(NamedTuple):
    """*length* chunks of a buffer, from *start* on."""

    buffer: str
    start: int
    length: int = 1

    def places(self) -> Iterator[BufferPlace]:
        """Yield its chunks."""
        return (BufferPlace(self.buffer, chunk) for chunk in range(self.start, self.start + self.length))

    def part(self, offset: int, length: int) -> BufferSpan:
        """Return *length* of its chunks, from *offset* on."""
        return BufferSpan(self.buffer, self.start + offset, length)


@dataclass(frozen=True, slots=True)
class Move:
    """A local copy, or reduction, of *source* into *target*."""

    source: BufferSpan
    target: BufferSpan
    reduces: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class LoweredMessage:
    """*source* of rank *sender* goes to *target* of rank *receiver*, where it may be reduced in.

    Messages of one step to one rank go over *connections* of their own, so that they need not wait for
    each other; those between two ranks are numbered from 0.
    """

    sender: int
    receiver: int
    source: BufferSpan
    target: BufferSpan
    reduces: bool
    connection: int


@dataclass(slots=True)
class LoweredStep:
    """What one rank does in a step: the moves, in this order, then the messages."""

    moves: list[Move] = field(default_factory=list)
    sends: list[LoweredMessage] = field(default_factory=list)
    receives: list[LoweredMessage] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program of all ranks.

    Attributes:
        algorithm: name and parameters.
        collective: as the formats call it.
        in_place: the input is the output, or a part of it, or the other way round.
        num_chunks: of the longer of the two.
        input_chunks: of the input that is used.
        output_chunks: of the output that is used.
        scratch_chunks: as the rank with the most needs.
        ranks: the steps of each rank.
    """

    algorithm: str
    collective: str
    in_place: bool
    num_chunks: int
    input_chunks: int
    output_chunks: int
    scratch_chunks: int
    ranks: tuple[tuple[LoweredStep, ...], ...]


def lower(algorithm: Algorithm, world_size: int, format_name: str, max_count: int | None = None) -> Lowered:
    """Return *algorithm* in terms of the buffers, after proving it.

    Args:
        algorithm: what to lower.
        world_size: number of ranks.
        format_name: of the format that it is for, as errors call it.
        max_count: chunks that one message or move may have; longer ones are divided.

    Raises:
        NotSupportedError: the formats do not know the collective; or the program refuses.
        ProgramError: the program is wrong.
    """
    if algorithm.collective not in COLLECTIVE_NAMES:
        known = ", ".join(COLLECTIVE_NAMES)
        raise NotSupportedError(
            f"{algorithm}: {format_name} has no place for the root of a {algorithm.collective}, so a file "
            f"would be right for one root only and could not say which; it can express {known}"
        )

    prove(algorithm, world_size)
    ranks = [_Rank(algorithm, rank, world_size, max_count) for rank in range(world_size)]
    lowered = [rank.lower() for rank in ranks]
    _join(ranks, lowered)
    collective, chunks = algorithm.collective, algorithm.num_chunks(world_size)

    return Lowered(
        algorithm=str(algorithm),
        collective=COLLECTIVE_NAMES[collective],
        in_place=collective != "all_to_all",
        num_chunks=chunks,
        input_chunks=chunks // world_size if collective == "all_gather" else chunks,
        output_chunks=chunks // world_size if collective == "reduce_scatter" else chunks,
        scratch_chunks=max(rank.scratch_used for rank in ranks),
        ranks=tuple(map(tuple, lowered)),
    )


@dataclass(frozen=True, slots=True)
class _Half:
    """One side of a message, until the other is known."""

    step: int
    peer: int
    spans: tuple[BufferSpan, ...]
    reduces: bool = False
    connection: int = 0


class _Rank:
    """The lowering of one rank's steps, but for the other sides of its messages."""

    def __init__(self, algorithm: Algorithm, rank: int, world_size: int, max_count: int | None) -> None:
        self.program = algorithm.steps(rank, world_size)
        self.num_chunks = algorithm.num_chunks(world_size)
        self.max_count = max_count or max(self.num_chunks, algorithm.num_scratch_chunks(world_size), 1)
        self.works_in = _WORKS_IN[algorithm.collective]
        self.unmoved = set(range(self.num_chunks)) if algorithm.collective == "all_to_all" else set()
        self.own_scratch = algorithm.num_scratch_chunks(world_size)
        self.scratch_used = self.own_scratch
        self.sends: list[_Half] = []
        self.receives: list[_Half] = []

    def lower(self) -> list[LoweredStep]:
        """Return all steps with their moves; collect the halves of messages."""
        lowered = [self.lower_step(number, step) for number, step in enumerate(self.program)]
        if self.unmoved:
            lowered.append(LoweredStep(list(self.to_output(self.unmoved))))
        return lowered

    def lower_step(self, number: int, step: Step) -> LoweredStep:
        """Lower one step: reads are of what was there before, wherever that is."""
        writes = [operation for operation in step if not isinstance(operation, Send)]
        overwritten = {self.written_place(chunk) for write in writes for chunk in _chunks(write)}
        saved: dict[BufferPlace, BufferPlace] = {}
        moves: list[Move] = []
        moved_to: set[BufferPlace] = set()
        num_messages: Counter[int] = Counter()

        for operation in step:
            if isinstance(operation, Send):
                spans = self.spans(self.read_places(_chunks(operation), overwritten, saved))
                connection = num_messages[operation.peer] % MAX_CONNECTIONS
                num_messages[operation.peer] += 1
                self.sends.append(_Half(number, operation.peer, tuple(spans), connection=connection))
                continue
            target = BufferSpan(*self.written_place(operation.chunk), operation.num_chunks)
            if isinstance(operation, Local):
                moved_to.update(target.places())
                source = range(operation.source, operation.source + operation.num_chunks)
                spans = self.spans(self.read_places(source, moved_to, saved))
                moves += _moves(spans, target, operation.reduces)
            else:
                self.receives.append(_Half(number, operation.peer, (target,), operation.reduces))

        reduced = {chunk for write in writes if write.reduces for chunk in _chunks(write)}
        first = [Move(old, new) for old, new in self.pairs(saved.items())]
        first += self.to_output(reduced & self.unmoved)
        self.unmoved -= {place.chunk for place in overwritten if place.buffer == self.works_in}

        return LoweredStep([*first, *moves])

    def to_output(self, chunks: Iterable[int]) -> Iterator[Move]:
        """Yield the moves of *chunks* that are still in the input to the output."""
        for source in self.spans(map(self.place, sorted(chunks))):
            yield Move(source, BufferSpan(self.works_in, source.start, source.length))

    def place(self, chunk: int) -> BufferPlace:
        """Return where *chunk* lives now."""
        if chunk in self.unmoved:
            return BufferPlace("i", chunk)
        return self.written_place(chunk)

    def written_place(self, chunk: int) -> BufferPlace:
        """Return where *chunk* lives once it has been written."""
        if chunk >= self.num_chunks:
            return BufferPlace("s", chunk - self.num_chunks)
        return BufferPlace(self.works_in, chunk)

    def read_places(
        self, chunks: Iterable[int], overwritten: set[BufferPlace], saved: dict[BufferPlace, BufferPlace]
    ) -> Iterator[BufferPlace]:
        """Yield from where to read *chunks*: a place in scratch, entered in *saved*, if need be."""
        for place in map(self.place, chunks):
            if place in overwritten and place not in saved:
                saved[place] = BufferPlace("s", self.own_scratch + len(saved))
                self.scratch_used = max(self.scratch_used, self.own_scratch + len(saved))
            yield saved[place] if place in overwritten else place

    def spans(self, places: Iterable[BufferPlace]) -> list[BufferSpan]:
        """Return *places* as spans of at most ``max_count`` chunks."""
        return [new for _, new in self.pairs((place, place) for place in places)]

    def pairs(self, places: Iterable[tuple[BufferPlace, BufferPlace]]) -> list[tuple[BufferSpan, BufferSpan]]:
        """Return pairs of places as pairs of spans, where both sides go on."""
        found: list[tuple[BufferSpan, BufferSpan]] = []
        for pair in places:
            if found and found[-1][0].length < self.max_count and all(map(_goes_on, found[-1], pair)):
                old, new = found[-1]
                found[-1] = old._replace(length=old.length + 1), new._replace(length=new.length + 1)
            else:
                found.append((BufferSpan(*pair[0]), BufferSpan(*pair[1])))
        return found


def _chunks(operation: Operation) -> range:
    return range(operation.chunk, operation.chunk + operation.num_chunks)


def _goes_on(span: BufferSpan, place: BufferPlace) -> bool:
    return place == (span.buffer, span.start + span.length)


def _moves(sources: Iterable[BufferSpan], target: BufferSpan, reduces: bool) -> Iterator[Move]:
    offset = 0
    for source in sources:
        yield Move(source, target.part(offset, source.length), reduces)
        offset += source.length


def _join(ranks: list[_Rank], lowered: list[list[LoweredStep]]) -> None:
    """Match the halves of all messages, in the order in which they were posted."""
    sent: defaultdict[tuple[int, int], deque[_Half]] = defaultdict(deque)
    for number, rank in enumerate(ranks):
        for half in rank.sends:
            sent[number, half.peer].append(half)
    for number, rank in enumerate(ranks):
        for half in rank.receives:
            other = sent[half.peer, number].popleft()
            for move in _moves(other.spans, half.spans[0], half.reduces):
                message = LoweredMessage(
                    half.peer, number, move.source, move.target, half.reduces, other.connection
                )
                lowered[half.peer][other.step].sends.append(message)
                lowered[number][half.step].receives.append(message)
