"""Steps prepared: which elements each operation reads and writes, worked out once for all calls alike.

Programs are short and calls are many, so what a program says is not worked out again where the message itself
takes only microseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, islice
from typing import Any, NamedTuple

import torch

from collectives.program import Local, Send, Step
from collectives.program.chunking import Buffer, Chunking, Splits, place_of
from collectives.program.program_key import ProgramKey

PIECE = 1 << 20
"""Bytes of a message at most: a longer one goes in pieces, which are read while they are in the cache."""

_MOST_STEPS = 256
"""Steps of a program up to which they are kept."""


class Span(NamedTuple):
    """Elements from *start* to *stop* of the data, or of the scratch; *whole* if they are all of the data."""

    in_scratch: bool
    start: int
    stop: int
    whole: bool = False

    def of(self, buffer: Buffer) -> Any:
        """Return them."""
        if self.whole:
            return buffer.data
        elements = buffer.scratch if self.in_scratch else buffer.data
        return elements[self.start : self.stop]


class Write(NamedTuple):
    """What a step writes.

    Attributes:
        reduces: whether it adds to what is there.
        target: where it writes.
        source: what it reads there, if it is no message.
        kept: whether that is overwritten in this step, so that it is copied at first.
    """

    reduces: bool
    target: Span
    source: Span | None = None
    kept: bool = False


class Sent(NamedTuple):
    """What a step sends.

    Attributes:
        peer: the receiver.
        span: what it is sent.
        readers: to how many that is sent.
        is_kept: whether the step leaves it as it is.
    """

    peer: int
    span: Span
    readers: int
    is_kept: bool


class PreparedStep(NamedTuple):
    """A step, ready for many calls.

    Attributes:
        step: without the operations on nothing.
        sends: what peers are sent, piece by piece.
        receives: peers, and the number in *writes* of what comes from them.
        writes: in the order of the step, piece by piece.
        before: for each of *writes*, the number of the last one before it that has the same target, or -1.
        after: the other way round.
        in_turn: whether what has come may be written as soon as what is *before* it has been, as nothing else
            of the step reads or writes there.
        written: what the step writes, operation by operation.
        senders: peers from which something comes, and *receivers*, to which something goes, each once.
    """

    step: Step
    sends: tuple[Sent, ...]
    receives: tuple[tuple[int, int], ...]
    writes: tuple[Write, ...]
    before: tuple[int, ...]
    after: Mapping[int, int]
    in_turn: bool
    written: tuple[Span, ...]
    senders: tuple[int, ...]
    receivers: tuple[int, ...]

    @property
    def is_local(self) -> bool:
        """Whether it has no messages."""
        return not self.sends and not self.receives


def prepare(step: Step, chunking: Chunking | Splits) -> PreparedStep:
    """Return *step*, on a buffer that is divided so."""
    step = tuple(operation for operation in step if chunking.nbytes(operation.chunk, operation.num_chunks))
    read: list[Span] = []
    received: list[Span] = []
    local: list[Span] = []
    sends: list[tuple[int, Span, bool]] = []
    receives: list[tuple[int, int]] = []
    writes: list[Write] = []
    own = [_span(chunking, operation.chunk, operation.num_chunks) for operation in step]
    written = [span for span, operation in zip(own, step, strict=True) if not isinstance(operation, Send)]
    for operation, span in zip(step, own, strict=True):
        if isinstance(operation, Local):
            source = _span(chunking, operation.source, operation.num_chunks)
            read.append(source)
            local.append(span)
            writes.append(Write(operation.reduces, span, source))
            continue
        (read if isinstance(operation, Send) else received).append(span)
        is_kept = not any(overlap(span, there) for there in written)
        for piece in _pieces(span, chunking.itemsize):
            if isinstance(operation, Send):
                sends.append((operation.peer, piece, is_kept))
            else:
                receives.append((operation.peer, len(writes)))
                writes.append(Write(operation.reduces, piece))
    kept = {source for source in read if any(overlap(source, there) for there in written)}
    in_turn = not any(overlap(one, other) for one in received for other in (*read, *local)) and not any(
        one != other and overlap(one, other) for one, other in combinations(received, 2)
    )
    senders, receivers = (tuple({own[0]: None for own in side}) for side in (receives, sends))
    before = _before(writes)
    readers = Counter(piece for _, piece, _ in sends)
    return PreparedStep(
        step,
        tuple(Sent(peer, piece, readers[piece], is_kept) for peer, piece, is_kept in sends),
        tuple(receives),
        tuple(own._replace(kept=own.source in kept) for own in writes),
        before,
        {earlier: number for number, earlier in enumerate(before) if earlier >= 0},
        in_turn,
        tuple(written),
        senders,
        receivers,
    )


def _before(writes: Sequence[Write]) -> tuple[int, ...]:
    last: dict[Span, int] = {}
    before = []
    for number, own in enumerate(writes):
        before.append(last.get(own.target, -1))
        last[own.target] = number
    return tuple(before)


def steps_of(
    key: ProgramKey, rank: int, world_size: int, chunking: Chunking | Splits
) -> Iterator[PreparedStep]:
    """Yield the steps of *rank* that do anything; those of short programs are kept."""
    first, rest = _kept(key, rank, world_size, chunking)
    yield from first
    if rest:
        for step in islice(key.algorithm.steps(rank, world_size), _MOST_STEPS, None):
            yield prepare(step, chunking)


@lru_cache(maxsize=128)
def _kept(
    key: ProgramKey, rank: int, world_size: int, chunking: Chunking | Splits
) -> tuple[tuple[PreparedStep, ...], bool]:
    """Return the first steps, and whether there are more."""
    steps = list(islice(key.algorithm.steps(rank, world_size), _MOST_STEPS + 1))
    prepared = tuple(prepare(step, chunking) for step in steps[:_MOST_STEPS])
    return tuple(step for step in prepared if step.step), len(steps) > _MOST_STEPS


def write(write: Write, buffer: Buffer, data: torch.Tensor) -> None:
    """Carry out *write* of *data*."""
    if write.reduces:
        buffer.reduce(write.target.of(buffer), data)
    else:
        write.target.of(buffer).copy_(data)


def land(prepared: PreparedStep, buffer: Buffer, incoming: Mapping[int, torch.Tensor]) -> None:
    """Carry out the writes of *prepared*: of what *incoming* has by number, or of what the step reads."""
    for number, own in enumerate(prepared.writes):
        if number in incoming:
            write(own, buffer, incoming[number])
        elif own.source is not None:
            write(own, buffer, own.source.of(buffer))


def copies(prepared: PreparedStep, buffer: Buffer) -> dict[int, torch.Tensor]:
    """Return what *prepared* reads by itself and overwrites, by number."""
    return {
        number: own.source.of(buffer).clone()
        for number, own in enumerate(prepared.writes)
        if own.kept and own.source is not None
    }


def _pieces(span: Span, itemsize: int) -> Iterator[Span]:
    length = PIECE // itemsize
    if span.stop - span.start <= length:
        yield span
        return
    for start in range(span.start, span.stop, length):
        yield Span(span.in_scratch, start, min(start + length, span.stop))


def _span(chunking: Chunking | Splits, chunk: int, num_chunks: int) -> Span:
    in_scratch, start, stop = place_of(chunking, chunk, num_chunks)
    return Span(in_scratch, start, stop, whole=not in_scratch and stop - start == chunking.count)


def overlap(one: Span, other: Span) -> bool:
    """Return whether *one* and *other* have elements in common."""
    return one.in_scratch == other.in_scratch and one.start < other.stop and other.start < one.stop
