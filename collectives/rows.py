"""The steps of all ranks as rows: step k of every rank is one array of messages.

Who sends to whom in a row, its *pattern*, is worked out once and kept for as long as the next
rows have the same; from row to row only the chunks move on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from collectives.chunking import Chunking
from collectives.errors import NotExactError
from collectives.program import Algorithm, Local, Operation, Send, Step

Int64Array: TypeAlias = npt.NDArray[np.int64]

MAX_STACKED_OPERATIONS = 300_000
"""Operations up to which a program without an array form is built rank by rank and stacked."""


def rows_of(algorithm: Algorithm, num_ranks: int) -> Iterator[Step]:
    """Yield the steps of all ranks as rows of operations over arrays of ranks.

    Raises:
        NotExactError: the program has no array form and is too long to be stacked.
    """
    if algorithm.array_form:
        yield from algorithm.steps_over_ranks(num_ranks)
        return
    budget = MAX_STACKED_OPERATIONS
    for steps in zip_longest(*(algorithm.steps(rank, num_ranks) for rank in range(num_ranks)), fillvalue=()):
        budget -= sum(map(len, steps))
        if budget < 0:
            limit = f"more than {MAX_STACKED_OPERATIONS} operations"
            raise NotExactError(f"{algorithm} has no array form and {limit}; use engine='events'")
        yield tuple(_stack(steps))


class Pattern:
    """The messages of a row: sources, destinations, and how to find their sizes.

    Attributes:
        source: rank that sends each message, shape (messages,).
        destination: rank that receives it.

    Raises:
        NotExactError: sends and receives do not match within the row.
    """

    def __init__(self, row: Step, num_ranks: int) -> None:
        self._row = row
        self._num_ranks = num_ranks
        self._sends = [n for n, operation in enumerate(row) if isinstance(operation, Send)]
        self._receives = [n for n, op in enumerate(row) if not isinstance(op, (Send, Local))]
        sending, here, there = self._sides(self._sends)
        receiving, receiver, sender = self._sides(self._receives)
        order, other = np.lexsort((there, here)), np.lexsort((receiver, sender))
        self.source, self.destination = here[order], there[order]
        if not (
            np.array_equal(self.source, sender[other]) and np.array_equal(self.destination, receiver[other])
        ):
            raise NotExactError("sends and receives do not match step by step; use engine='events'")
        self._sending, self._receiving = sending[order], receiving[other]

    def fits(self, row: Step) -> bool:
        """Return whether *row* has this pattern."""
        return len(row) == len(self._row) and all(
            type(new) is type(old)
            and (isinstance(new, Local) or (_same(_peer(new), _peer(old)) and _same(new.when, old.when)))
            for new, old in zip(row, self._row, strict=True)
        )

    def nbytes(self, row: Step, chunking: Chunking) -> Int64Array:
        """Return the size of each message of *row*, which must have this pattern.

        Raises:
            NotExactError: the two sides of a message differ in size.
        """
        sent: Int64Array = self._sizes(row, self._sends, chunking)[self._sending, self.source]
        received = self._sizes(row, self._receives, chunking)[self._receiving, self.destination]
        if not np.array_equal(sent, received):
            raise NotExactError("the two sides of a message differ in size")
        return sent

    def _sides(self, positions: list[int]) -> Int64Array:
        """Return (operation, rank, peer) of each rank's part in the operations at *positions*."""
        sides = [np.zeros((3, 0), dtype=np.int64)]
        for number, position in enumerate(positions):
            operation = self._row[position]
            ranks = np.flatnonzero(over_ranks(operation.when, self._num_ranks))
            sides.append(
                np.stack(
                    [np.full_like(ranks, number), ranks, over_ranks(_peer(operation), self._num_ranks)[ranks]]
                )
            )
        return np.concatenate(sides, axis=1)

    def _sizes(self, row: Step, positions: list[int], chunking: Chunking) -> Int64Array:
        """Return the bytes that each operation at *positions* moves on each rank."""
        sizes = np.empty((len(positions), self._num_ranks), dtype=np.int64)
        for number, position in enumerate(positions):
            operation = row[position]
            stop = chunking.starts_in_bytes(operation.chunk + operation.num_chunks)
            sizes[number] = stop - chunking.starts_in_bytes(operation.chunk)
        return sizes


def over_ranks(value: Any, num_ranks: int) -> Any:
    """Return a field of an operation, one value or one for each rank, as an array over the ranks."""
    return np.broadcast_to(np.asarray(value), (num_ranks,))


def _peer(operation: Operation) -> Any:
    return operation.source if isinstance(operation, Local) else operation.peer


def _same(new: Any, old: Any) -> bool:
    return new is old or np.array_equal(new, old)


def _stack(steps: Iterable[Step]) -> Iterator[Operation]:
    """Yield the n-th operations of all ranks' steps, kind by kind, as operations over arrays."""
    for column in zip_longest(*steps):
        for kind in {type(operation) for operation in column if operation is not None}:
            fields = np.zeros((3, len(column)), dtype=np.int64)
            mask = np.array([type(operation) is kind for operation in column])
            for rank in np.flatnonzero(mask):
                operation = column[rank]
                fields[:, rank] = _peer(operation), operation.chunk, operation.num_chunks
            arrays: Any = (*fields, mask)
            yield kind(*arrays)
