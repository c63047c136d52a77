"""How a buffer of n elements is divided into chunks.

Of *count* elements each chunk has ``⌈count / num_chunks⌉``, the last ones fewer or none, as
``torch.chunk`` divides; balanced chunks would put the ranks out of step.  An operation on an
empty range moves nothing, costs nothing and is not posted, on either side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from collectives.program import Copy, Operation, Send, Step


@dataclass(frozen=True, slots=True)
class Chunking:
    """The division of *count* elements of *itemsize* bytes into *num_chunks* chunks."""

    count: int
    num_chunks: int
    itemsize: int = 1

    def span(self, chunk: int, num_chunks: int = 1) -> tuple[int, int]:
        """Return the elements ``[start, stop)`` of a range of chunks."""
        length = -(-self.count // self.num_chunks)
        return min(chunk * length, self.count), min((chunk + num_chunks) * length, self.count)

    def nbytes(self, chunk: int, num_chunks: int = 1) -> int:
        """Return the bytes of a range of chunks."""
        start, stop = self.span(chunk, num_chunks)
        return (stop - start) * self.itemsize


def _add(accumulator: Any, incoming: Any) -> None:
    accumulator += incoming


@dataclass(frozen=True, slots=True)
class Buffer:
    """What a program works on: a flat array divided into chunks, or only its size.

    Attributes:
        chunking: the division into chunks.
        data: a flat tensor or array of ``chunking.count`` elements; ``None`` where only sizes travel.
        reduce: adds the second argument into the first, in place.
    """

    chunking: Chunking
    data: Any = None
    reduce: Callable[[Any, Any], None] = _add

    def view(self, operation: Operation) -> Any:
        """Return the elements that *operation* reads (`Send`) or writes (all others)."""
        start, stop = self.chunking.span(operation.chunk, operation.num_chunks)
        return self.data[start:stop]

    def source_view(self, operation: Copy) -> Any:
        """Return the elements that a `Copy` reads."""
        start, stop = self.chunking.span(operation.source, operation.num_chunks)
        return self.data[start:stop]

    def snapshot(self, operation: Send | Copy) -> Any:
        """Return a copy of what *operation* reads, or None where only sizes travel."""
        if self.data is None:
            return None
        view = self.source_view(operation) if isinstance(operation, Copy) else self.view(operation)
        return view.clone() if hasattr(view, "clone") else view.copy()

    def nbytes(self, operation: Operation) -> int:
        """Return how many bytes *operation* moves."""
        return self.chunking.nbytes(operation.chunk, operation.num_chunks)

    def without_empty(self, step: Step) -> Step:
        """Return *step* without the operations whose range is empty."""
        return tuple(operation for operation in step if self.nbytes(operation))
