"""Rows of a program: step k of all ranks as one array of messages.

Who sends to whom in a row, its *pattern*, is worked out once and kept for as long as the next
rows have the same; from row to row only the chunks move on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from collectives.errors import NotExactError
from collectives.program.chunking import Chunking
from collectives.program.program import Algorithm, Local, Operation, Send, Step, moved
from collectives.program.rank_array import Deferred, RankArray
from collectives.timing.rows.sizes import MostlyEqual, Rotating, Sizes
from sim.units import Int64Array

Int32Array: TypeAlias = npt.NDArray[np.int32]

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
        channel: the connection that carries it.

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
        channels = np.array([_channel(row[position]) for position in self._sends], dtype=np.int64)
        self.channel = channels[sending[order]]
        self._sent_as = self._message_of(self.source, sending[order], len(self._sends))
        self._received_as = self._message_of(self.destination, receiving[other], len(self._receives))
        one_each = len(self._sends) == len(self._receives) == 1
        self._each_sends_one = one_each and np.array_equal(self.source, np.arange(num_ranks))
        self._agreed: set[int] = set()
        self._placed: tuple[Any, Chunking, Int64Array] | None = None

    def fits(self, row: Step) -> bool:
        """Return whether *row* has this pattern."""
        return len(row) == len(self._row) and all(
            type(new) is type(old)
            and (isinstance(new, Local) or (_same(_peer(new), _peer(old)) and _same(new.when, old.when)))
            and _channel(new) == _channel(old)
            for new, old in zip(row, self._row, strict=True)
        )

    def nbytes(self, row: Step, chunking: Chunking) -> Sizes:
        """Return the size of each message of *row*, which must have this pattern.

        Raises:
            NotExactError: the two sides of a message differ in size.
        """
        few_sent = self._few_sizes(row, self._sends, self._sent_as, chunking)
        if few_sent is not None and few_sent == self._few_sizes(
            row, self._receives, self._received_as, chunking
        ):
            return few_sent
        placed = self._placed_sizes(row, chunking)
        if placed is not None:
            return placed
        rotating = self._rotating(row, chunking)
        if rotating is not None:
            return rotating
        each = self._each_size(row, chunking)
        return MostlyEqual(int(each[0])) if each.size and (each == each[0]).all() else each

    def sent(self, row: Step) -> Iterator[tuple[Operation, Int64Array, Int32Array]]:
        """Yield each send of *row*, which has this pattern: the ranks that have it, and its messages."""
        for position, ranks, messages in self._parts(self._sends, self._sent_as):
            yield row[position], ranks, messages

    def received(self) -> Iterator[tuple[int, Int64Array, Int32Array]]:
        """Yield the position of each receive: the ranks that have it, and its messages."""
        yield from self._parts(self._receives, self._received_as)

    def _parts(
        self, positions: list[int], messages_of: Int32Array
    ) -> Iterator[tuple[int, Int64Array, Int32Array]]:
        for position, messages in zip(positions, messages_of, strict=True):
            ranks = np.flatnonzero(messages < len(self.source))
            yield position, ranks, messages[ranks]

    def _placed_sizes(self, row: Step, chunking: Chunking) -> Int64Array | None:
        """Return the sizes where each operation moves one chunk of one slice; the same array each time."""
        places = tuple([place_of(operation) for operation in row if not isinstance(operation, Local)])
        if any(place is None or place[1] != chunking.chunks_per_part for place in places):
            return None
        if self._placed is None or self._placed[:2] != (places, chunking):
            self._placed = places, chunking, self._each_size(row, chunking)
        return self._placed[2]

    def _rotating(self, row: Step, chunking: Chunking) -> Rotating | None:
        """Return the sizes where every rank sends one range of chunks and all turn together."""
        if not self._each_sends_one or chunking.num_parts != 1 or chunking.num_chunks != self._num_ranks:
            return None
        sent, received = row[self._sends[0]], row[self._receives[0]]
        ends: Any = sent.chunk, received.chunk
        turns = [end.turn if isinstance(end, RankArray) else None for end in ends]
        length = length_of(sent)
        if length is None or length != length_of(received) or turns[0] is None or turns[1] is None:
            return None
        apart = (turns[0] - turns[1]) % self._num_ranks
        if apart not in self._agreed:
            if not np.array_equal(np.asarray(ends[0]), np.asarray(ends[1])[self.destination]):
                return None
            self._agreed.add(apart)  # if chunks agree in one row, they do in all that turn alike
        return Rotating(chunking.table(length), turns[0])

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

    def _message_of(self, sides: Int64Array, operations: Int64Array, num_operations: int) -> Int32Array:
        """Return which message each rank's part in an operation is; for none, one more than there are."""
        message = np.full((num_operations, self._num_ranks), len(self.source), dtype=np.int32)
        message[operations, sides] = np.arange(len(self.source))
        return message

    def _few_sizes(
        self, row: Step, positions: list[int], messages: Int32Array, chunking: Chunking
    ) -> MostlyEqual | None:
        """Return what `_sizes` would, without arrays: where chunks are rotations and most of one size."""
        lengths = {length_of(row[position]) for position in positions}
        length = lengths.pop() if len(lengths) == 1 else None
        if length is None:
            return None
        if chunking.is_even:
            return MostlyEqual(chunking.nbytes(0, length))
        unusual = range(chunking.num_full - length + 1, 2**62)
        sizes = MostlyEqual(chunking.nbytes(0, length))
        if chunking.num_parts == 1 and chunking.num_not_empty <= 3:
            unusual, sizes = range(chunking.num_not_empty), MostlyEqual(0)

        for position, message in zip(positions, messages, strict=True):
            chunks: Any = row[position].chunk
            in_buffer = isinstance(chunks, RankArray) and chunks.highest + length <= chunking.num_chunks
            ranks = chunks.ranks_in(unusual) if in_buffer else None
            if ranks is None:
                return None
            for rank in ranks:
                number = int(message[rank])
                if number < len(self.source):
                    sizes.others[number] = chunking.nbytes(chunks.at(rank), length)

        return sizes

    def _each_size(self, row: Step, chunking: Chunking) -> Int64Array:
        """Return the bytes of each message, of which its two sides must agree."""
        sent = self._sizes(row, self._sends, self._sent_as, chunking)
        if not np.array_equal(sent, self._sizes(row, self._receives, self._received_as, chunking)):
            raise NotExactError("the two sides of a message differ in size")
        return sent

    def _sizes(self, row: Step, positions: list[int], messages: Int32Array, chunking: Chunking) -> Int64Array:
        """Return the bytes of each message, as the operations at *positions* have them."""
        sizes = np.zeros(len(self.source) + 1, dtype=np.int64)
        for position, message in zip(positions, messages, strict=True):
            chunk, length = np.asarray(row[position].chunk), row[position].num_chunks
            if length_of(row[position]) is None or not chunk.shape:
                start = chunking.starts_in_bytes(chunk)
                sizes[message] = chunking.starts_in_bytes(chunk + length) - start
                continue
            if len(positions) == 1:
                sizes.fill(chunking.nbytes(0, length))
            else:
                sizes[message] = chunking.nbytes(0, length)
            last = np.flatnonzero(chunk > chunking.num_full - length)  # few: they reach behind the full ones
            if last.size:
                start = chunking.starts_in_bytes(chunk[last])
                sizes[message[last]] = chunking.starts_in_bytes(chunk[last] + length) - start
        return sizes[:-1]


def patterned_rows(
    algorithm: Algorithm, num_ranks: int, most_messages: int | None = None
) -> Iterator[tuple[Step, Pattern]]:
    """Yield each row with its pattern: the same object for as long as rows have it.

    Raises:
        NotExactError: see `rows_of` and `Pattern`; or a row has more messages.
    """
    pattern: Pattern | None = None
    for row in rows_of(algorithm, num_ranks):
        if pattern is None or not pattern.fits(row):
            if most_messages is not None and _num_sends(row, num_ranks) > most_messages:
                raise NotExactError(
                    f"{algorithm} sends more than {most_messages} messages among {num_ranks} ranks"
                )
            pattern = Pattern(row, num_ranks)
        yield row, pattern


def _num_sends(row: Step, num_ranks: int) -> int:
    sends = (operation for operation in row if isinstance(operation, Send))
    return sum(int(np.count_nonzero(over_ranks(operation.when, num_ranks))) for operation in sends)


def reduced_nbytes(row: Step, num_ranks: int, chunking: Chunking, num_groups: int = 1) -> Int64Array:
    """Return how many bytes each rank of each group of *num_ranks* reduces at the end of *row*."""
    reduced = np.zeros(num_ranks, dtype=np.int64)
    for operation in row:
        if operation.reduces:
            stop = chunking.starts_in_bytes(operation.chunk + operation.num_chunks)
            reduced += np.where(operation.when, stop - chunking.starts_in_bytes(operation.chunk), 0)
    return reduced if num_groups == 1 else np.tile(reduced, num_groups)


def over_ranks(value: Any, num_ranks: int) -> Any:
    """Return a field of an operation, one value or one for each rank, as an array over the ranks."""
    return np.broadcast_to(np.asarray(value), (num_ranks,))


def _peer(operation: Operation) -> Any:
    return operation.source if isinstance(operation, Local) else operation.peer


def _channel(operation: Operation) -> int:
    return 0 if isinstance(operation, Local) else operation.channel


def length_of(operation: Operation) -> int | None:
    """Return how many chunks *operation* moves, if that is one number for all ranks."""
    length: Any = operation.num_chunks
    return length if isinstance(length, int) else None


def place_of(operation: Operation) -> tuple[int, int] | None:
    """Return which chunk of a part *operation* moves, and of how many, if all ranks move that one."""
    chunk: Any = operation.chunk
    return chunk.place if isinstance(chunk, Deferred) and length_of(operation) == 1 else None


def _same(new: Any, old: Any) -> bool:
    return new is old or (isinstance(new, RankArray) and new.same_as(old)) or np.array_equal(new, old)


def _stack(steps: Iterable[Step]) -> Iterator[Operation]:
    """Yield the n-th operations of all ranks' steps, kind by kind, as operations over arrays."""
    for column in zip_longest(*steps):
        kinds = [own and (type(own), _channel(own)) for own in column]
        for kind in dict.fromkeys(kind for kind in kinds if kind):
            fields = np.zeros((3, len(column)), dtype=np.int64)
            mask = np.array([other == kind for other in kinds])
            for rank in np.flatnonzero(mask):
                operation = column[rank]
                fields[:, rank] = _peer(operation), operation.chunk, operation.num_chunks
            first, chunk, num_chunks = fields
            yield moved(operation, first, chunk, num_chunks, mask)
