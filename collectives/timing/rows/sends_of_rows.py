"""Sends of rows under way: what ranks have sent in a row and peers have not yet taken when they go on.

As `collectives.timing.ranks.sends_under_way`, for all ranks at once: whether a rank may write follows
from the spans of its buffer that its sends read.  Where it would have to wait for one, there is no answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collectives.errors import NotExactError
from collectives.program import Send, Step
from collectives.program.chunking import Chunking
from collectives.program.program import Operation
from collectives.timing.rows.coflow_times import Times, over_ranks
from collectives.timing.rows.pattern import Pattern
from collectives.timing.rows.pattern import over_ranks as each_rank
from sim.units import Int64Array


@dataclass(frozen=True)
class _Sends:
    """Sends of one row: by which rank, of which of its bytes, and until when; each of shape (sends,)."""

    rank: Int64Array
    start: Int64Array
    stop: Int64Array
    until_ps: Int64Array

    def select(self, some: npt.NDArray[np.bool_]) -> _Sends:
        return _Sends(self.rank[some], self.start[some], self.stop[some], self.until_ps[some])


class SendsOfRows:
    """The sends that ranks have under way.

    Args:
        chunking: how programs divide the buffer.
        num_ranks: in the group.
    """

    def __init__(self, chunking: Chunking, num_ranks: int) -> None:
        self._chunking = chunking
        self._num_ranks = num_ranks
        self._under_way: list[_Sends] = []

    def check(self, row: Step, ready: Times) -> None:
        """Check that no rank, which comes to *row* when it is *ready*, writes what it still sends.

        Raises:
            NotExactError: one does.
        """
        if self._under_way:
            of_each = over_ranks(ready, self._num_ranks)
            left = [sends.select(sends.until_ps > of_each[sends.rank]) for sends in self._under_way]
            self._under_way = [sends for sends in left if len(sends.rank)]
            self._check_writes(row, self._under_way)

    def note(
        self, row: Step, pattern: Pattern, numbers: Int64Array, ends: Int64Array, after: Int64Array
    ) -> None:
        """Note what is under way when ranks have completed *row*.

        Args:
            row: the step of all ranks.
            pattern: its messages.
            numbers: of those of them that are not empty.
            ends: when each of these ends.
            after: when each rank completes the row.

        Raises:
            NotExactError: a rank writes, at the end of the row, what it sends in it.
        """
        outlive = ends > after[pattern.source[numbers]]
        if not outlive.any():
            return
        start, stop = np.zeros((2, len(pattern.source)), dtype=np.int64)
        for operation, ranks, messages in pattern.sent(row):
            first, last = self._span(operation)
            start[messages], stop[messages] = first[ranks], last[ranks]

        late = numbers[outlive]
        sends = _Sends(pattern.source[late], start[late], stop[late], ends[outlive])
        self._check_writes(row, [sends])
        self._under_way.append(sends)

    def drained(self, ready: Times) -> Times:
        """Return when each rank has had all of them taken, being *ready*."""
        if not self._under_way:
            return ready
        drained = over_ranks(ready, self._num_ranks).copy()
        for sends in self._under_way:
            np.maximum.at(drained, sends.rank, sends.until_ps)
        return drained

    def _check_writes(self, row: Step, under_way: list[_Sends]) -> None:
        for operation in row:
            if isinstance(operation, Send):
                continue
            first, last = self._span(operation)
            writes = (first < last) & each_rank(operation.when, self._num_ranks)
            for sends in under_way:
                overlap = (first[sends.rank] < sends.stop) & (sends.start < last[sends.rank])
                if (overlap & writes[sends.rank]).any():
                    raise NotExactError(
                        "a rank writes to memory that peers have yet to take; use engine='events'"
                    )

    def _span(self, operation: Operation) -> tuple[Int64Array, Int64Array]:
        """Return where what each rank reads or writes starts and stops, in bytes."""
        chunk = each_rank(operation.chunk, self._num_ranks)
        starts = self._chunking.starts_in_bytes
        return starts(chunk), starts(chunk + each_rank(operation.num_chunks, self._num_ranks))
