"""Completion of the steps of all ranks at once, by the rule of a transport that is not the ideal one.

A rank may know of what it receives some time after its last byte, and may go on while what it has sent is
under way (`collectives.execution.transport_model`).  Whether a rank may then write follows from the spans of
its buffer that its sends read, as in `collectives.timing.ranks.sends_under_way`; as long as nobody writes
where a send still reads, when a rank goes on follows from the ends of its messages alone.  Where somebody
does, there is no answer.  While ranks keep in step and each sends and receives one message of one size, all
end together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collectives.errors import NotExactError
from collectives.execution.transport_model import TransportModel
from collectives.program import Send, Step
from collectives.program.chunking import Chunking
from collectives.program.program import Operation
from collectives.timing.rows.coflow_times import CoflowTimes, Times, over_ranks, together
from collectives.timing.rows.pattern import Pattern
from collectives.timing.rows.pattern import over_ranks as each_rank
from collectives.timing.rows.sizes import Sizes
from sim.units import Int64Array


class _Sends(NamedTuple):
    """Sends of one row: by which rank, of which of its bytes, and until when; each of shape (sends,)."""

    rank: Int64Array
    start: Int64Array
    stop: Int64Array
    until_ps: Int64Array


class StepCompletion:
    """When the ranks of a collective complete their steps, row after row.

    Args:
        transport_model: the rule.
        arrivals_ps: from the last byte of a message until each rank knows of it; None: at once.
        chunking: how the program divides the buffer.
        num_ranks: in the group.

    Attributes:
        longest_arrival_ps: the most of *arrivals_ps*.
    """

    def __init__(
        self,
        transport_model: TransportModel,
        arrivals_ps: Int64Array | None,
        chunking: Chunking,
        num_ranks: int,
    ) -> None:
        self._late_sends = transport_model.late_sends
        self._chunking = chunking
        self._num_ranks = num_ranks
        self._arrival_ps: Times = 0 if arrivals_ps is None else together(arrivals_ps)
        self.longest_arrival_ps = 0 if arrivals_ps is None else int(arrivals_ps.max(initial=0))
        self._under_way: list[_Sends] = []

    def check(self, row: Step, ready: Times) -> None:
        """Check that no rank, which comes to *row* when it is *ready*, writes what it still sends.

        Raises:
            NotExactError: one does.
        """
        if self._under_way:
            of_each = over_ranks(ready, self._num_ranks)
            late = [(sends, sends.until_ps > of_each[sends.rank]) for sends in self._under_way]
            self._under_way = [_Sends(*(own[some] for own in sends)) for sends, some in late if some.any()]
            self._check_writes(row, self._under_way)

    def advance(
        self,
        row: Step,
        pattern: Pattern,
        times: CoflowTimes,
        before: Times,
        nbytes: Sizes,
        busy_until: Int64Array,
    ) -> Times:
        """Return when each rank is through with the messages of *row*; see `CoflowTimes.advance`.

        Raises:
            NotExactError: as there; or a rank writes, at the end of the row, what it sends in it.
        """
        if isinstance(self._arrival_ps, int) and times.end_together(before, nbytes):
            return times.advance(before, nbytes, busy_until) + self._arrival_ps

        numbers, ends = times.ends(before, nbytes, busy_until)
        ready = over_ranks(before, self._num_ranks)
        known = np.zeros_like(ready)
        np.maximum.at(known, pattern.destination[numbers], ends)
        receives = known > 0
        known[receives] += over_ranks(self._arrival_ps, self._num_ranks)[receives]

        after: Int64Array = np.maximum(ready, known)
        if self._late_sends:
            self._note(row, pattern, numbers, ends, after)
        else:
            np.maximum.at(after, pattern.source[numbers], ends)
        return together(after)

    def drained(self, ready: Times) -> Times:
        """Return when each rank has had all taken that it has sent, being *ready*."""
        if not self._under_way:
            return ready
        drained = over_ranks(ready, self._num_ranks).copy()
        for sends in self._under_way:
            np.maximum.at(drained, sends.rank, sends.until_ps)
        return drained

    def _note(
        self, row: Step, pattern: Pattern, numbers: Int64Array, ends: Int64Array, after: Int64Array
    ) -> None:
        """Note what is under way when ranks are through *after*: messages of *row*, which have *ends*."""
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
