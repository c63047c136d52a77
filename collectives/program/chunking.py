"""Division of a buffer of n elements into chunks.

Of *count* elements each chunk has ``⌈count / num_chunks⌉``, the last ones fewer or none, as
``torch.chunk`` divides; balanced chunks would put the ranks out of step.  Where a buffer consists
of one equal part per rank, as in all-gather, each part is divided in this way.  An operation on an
empty range moves nothing, costs nothing and is not posted, on either side.

Elements are counted through: those of the buffer, then those of the scratch chunks, which are as
long as the chunks of a part, over and over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from collectives.program.contracts import CONTRACTS
from collectives.program.program import Algorithm, Local, Operation, Send, Step
from collectives.program.program_key import ProgramKey


@dataclass(frozen=True, slots=True)
class Chunking:
    """The division of *count* elements of *itemsize* bytes into *num_chunks* chunks.

    Attributes:
        count: elements of the buffer; of *num_parts* equal parts, rounded up to a multiple.
        num_chunks: of the whole buffer, a multiple of *num_parts*.
        itemsize: bytes of an element.
        num_parts: equal parts of the buffer, each of which is divided by itself.
    """

    count: int
    num_chunks: int
    itemsize: int = 1
    num_parts: int = 1
    _part: int = field(init=False, repr=False, compare=False)
    _chunk: int = field(init=False, repr=False, compare=False)
    _chunks_per_part: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        part = -(-self.count // self.num_parts)
        chunks_per_part = self.num_chunks // self.num_parts
        object.__setattr__(self, "_part", part)
        object.__setattr__(self, "_chunks_per_part", chunks_per_part)
        object.__setattr__(self, "_chunk", -(-part // chunks_per_part))

    @property
    def chunks_per_part(self) -> int:
        """Number of chunks of each part; what is a multiple of it apart is as long."""
        return self._chunks_per_part

    @property
    def has_empty(self) -> bool:
        """Whether some chunks have no elements."""
        return (self._chunks_per_part - 1) * self._chunk >= self._part

    @property
    def is_even(self) -> bool:
        """Whether all chunks are of one size."""
        return self._chunk * self._chunks_per_part == self._part

    def table(self, length: int) -> Any:
        """Return the bytes of *length* chunks from each chunk of the buffer on, two times over."""
        return _table(self, length)

    @classmethod
    def of(cls, algorithm: Algorithm, world_size: int, count: int, itemsize: int) -> Chunking:
        """Return how *algorithm* divides *count* elements, on every one of *world_size* ranks."""
        num_parts = CONTRACTS[algorithm.collective].num_parts(world_size)
        return cls(count, algorithm.num_chunks(world_size), itemsize, num_parts)

    def span(self, chunk: int, num_chunks: int = 1) -> tuple[int, int]:
        """Return the elements ``[start, stop)`` of a range of chunks."""
        return self._start(chunk), self._start(chunk + num_chunks)

    def _start(self, chunk: int) -> int:
        part, place = divmod(chunk, self._chunks_per_part)
        start = place * self._chunk
        return part * self._part + (start if start < self._part else self._part)

    @property
    def num_full(self) -> int:
        """Number of chunks, from the first on, before one that is shorter."""
        return self.num_chunks if self.is_even else self._part // self._chunk

    @property
    def num_not_empty(self) -> int:
        """Number of chunks of a part, from the first on, before one that is empty."""
        return -(-self._part // self._chunk) if self._chunk else 0

    def starts_in_bytes(self, chunks: Any) -> Any:
        """Return where *chunks*, a number or an array, start, in bytes."""
        part_nbytes, chunk_nbytes = self._part * self.itemsize, self._chunk * self.itemsize
        if self._chunks_per_part == 1:
            return chunks * part_nbytes
        if np.max(chunks) <= self._chunks_per_part:  # one part and no scratch, as in most rows
            return np.minimum(chunks * chunk_nbytes, part_nbytes)
        part, place = np.divmod(chunks, self._chunks_per_part)
        return part * part_nbytes + np.minimum(place * chunk_nbytes, part_nbytes)

    def nbytes(self, chunk: int, num_chunks: int = 1) -> int:
        """Return the bytes of a range of chunks."""
        start, stop = self.span(chunk, num_chunks)
        return (stop - start) * self.itemsize


@lru_cache(maxsize=4)
def _table(chunking: Chunking, length: int) -> Any:
    first = np.arange(chunking.num_chunks, dtype=np.int64)
    stop = np.minimum(first + length, chunking.num_chunks)
    return np.tile(chunking.starts_in_bytes(stop) - chunking.starts_in_bytes(first), 2)


@dataclass(frozen=True, slots=True)
class Splits:
    """The division of a buffer into chunks of given sizes, and of its scratch into as many.

    Attributes:
        starts: where each chunk starts, in elements, and where the last one ends.
        num_chunks: of the buffer.
        itemsize: bytes of an element.
    """

    starts: tuple[int, ...]
    num_chunks: int
    itemsize: int

    @property
    def count(self) -> int:
        """Elements of the buffer."""
        return self.starts[self.num_chunks]

    @property
    def has_empty(self) -> bool:
        """Whether some chunks have no elements."""
        return any(start == stop for start, stop in pairwise(self.starts))

    def span(self, chunk: int, num_chunks: int = 1) -> tuple[int, int]:
        """Return the elements ``[start, stop)`` of a range of chunks."""
        return self.starts[chunk], self.starts[chunk + num_chunks]

    def nbytes(self, chunk: int, num_chunks: int = 1) -> int:
        """Return the bytes of a range of chunks."""
        start, stop = self.span(chunk, num_chunks)
        return (stop - start) * self.itemsize


@lru_cache(maxsize=256)
def _division(key: ProgramKey, world_size: int, count: int, itemsize: int) -> tuple[Chunking, int]:
    """Return how a program divides *count* elements, and how many elements of scratch it has."""
    chunking = Chunking.of(key.algorithm, world_size, count, itemsize)
    start, stop = chunking.span(chunking.num_chunks, key.algorithm.num_scratch_chunks(world_size))
    return chunking, stop - start


def _add(accumulator: Any, incoming: Any) -> None:
    accumulator += incoming


@dataclass(frozen=True, slots=True)
class Buffer:
    """What a program works on: a flat array divided into chunks, or only its size.

    Attributes:
        chunking: the division into chunks.
        data: a flat tensor or array of ``chunking.count`` elements; ``None`` where only sizes travel.
        scratch: the elements of the scratch chunks.
        reduce: adds the second argument into the first, in place.
    """

    chunking: Chunking | Splits
    data: Any = None
    scratch: Any = None
    reduce: Callable[[Any, Any], None] = _add

    @classmethod
    def for_program(
        cls,
        algorithm: Algorithm,
        world_size: int,
        data: Any,
        itemsize: int,
        reduce: Callable[[Any, Any], None] = _add,
    ) -> Buffer:
        """Return *data*, flat and of elements of *itemsize* bytes, as *algorithm* divides it."""
        chunking, num_scratch = _division(ProgramKey.of(algorithm), world_size, len(data), itemsize)
        return cls(chunking, data, _like(data, num_scratch) if num_scratch else None, reduce)

    def view(self, operation: Operation) -> Any:
        """Return the elements that *operation* reads (`Send`) or writes (all others)."""
        return self._elements(operation.chunk, operation.num_chunks)

    def source(self, operation: Local, step: Step) -> Any:
        """Return what *operation* of *step* reads: a view, or a copy where the step writes there.

        None where only sizes travel.
        """
        if self.data is None:
            return None
        view = self._elements(operation.source, operation.num_chunks)
        read = range(operation.source, operation.source + operation.num_chunks)
        overwritten = any(
            other.chunk < read.stop and read.start < other.chunk + other.num_chunks
            for other in step
            if not isinstance(other, Send)
        )
        return _copy_of(view) if overwritten else view

    def _elements(self, chunk: int, num_chunks: int) -> Any:
        in_scratch, start, stop = place_of(self.chunking, chunk, num_chunks)
        return (self.scratch if in_scratch else self.data)[start:stop]

    def snapshot(self, operation: Send) -> Any:
        """Return a copy of what *operation* reads, or None where only sizes travel."""
        return None if self.data is None else _copy_of(self.view(operation))

    def nbytes(self, operation: Operation) -> int:
        """Return how many bytes *operation* moves."""
        return self.chunking.nbytes(operation.chunk, operation.num_chunks)

    def without_empty(self, step: Step) -> Step:
        """Return *step* without the operations whose range is empty."""
        if not self.chunking.has_empty:
            return step
        return tuple(operation for operation in step if self.nbytes(operation))


def place_of(chunking: Chunking | Splits, chunk: int, num_chunks: int) -> tuple[bool, int, int]:
    """Return whether a range of chunks is scratch, and which elements ``[start, stop)`` it is there."""
    start, stop = chunking.span(chunk, num_chunks)
    if chunk < chunking.num_chunks:
        return False, start, stop
    return True, start - chunking.count, stop - chunking.count


def _copy_of(view: Any) -> Any:
    return view.clone() if hasattr(view, "clone") else view.copy()


def _like(data: Any, count: int) -> Any:
    """Return room for *count* elements like those of *data*, a tensor or an array."""
    return data.new_empty(count) if hasattr(data, "new_empty") else np.empty_like(data, shape=count)
