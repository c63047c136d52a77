"""Completion of the steps of all ranks at once, by the rule of a transport that is not the ideal one.

A rank may know of what it receives some time after its last byte, and may go on while what it has sent is
under way (`collectives.execution.transport_model`).  As long as nobody writes meanwhile to what a send still
reads, when a rank goes on follows from the ends of its messages alone; where somebody does, `NotExactError`
says so.  While ranks keep in step and each sends and receives one message of one size, all end together.
"""

from __future__ import annotations

import numpy as np

from collectives.execution.transport_model import TransportModel
from collectives.program import Step
from collectives.program.chunking import Chunking
from collectives.timing.rows.coflow_times import CoflowTimes, Times, over_ranks, together
from collectives.timing.rows.masked_times import MaskedTimes
from collectives.timing.rows.pattern import Pattern, Sizes
from collectives.timing.rows.sends_of_rows import SendsOfRows
from sim.units import Int64Array


class StepCompletion:
    """When the ranks of a collective complete their steps, row after row.

    Args:
        transport_model: the rule.
        arrivals_ps: from the last byte of a message until each rank knows of it; None: at once.
        chunking: how the program divides the buffer.
        num_ranks: in the group.

    Attributes:
        longest_arrival_ps: the most of *arrivals_ps*.
        sends: what is under way when ranks go on.
    """

    def __init__(
        self,
        transport_model: TransportModel,
        arrivals_ps: Int64Array | None,
        chunking: Chunking,
        num_ranks: int,
    ) -> None:
        self._late_sends = transport_model.late_sends
        self._num_ranks = num_ranks
        self._arrival_ps: Times = 0 if arrivals_ps is None else together(arrivals_ps)
        self.longest_arrival_ps = 0 if arrivals_ps is None else int(arrivals_ps.max(initial=0))
        self.sends = SendsOfRows(chunking, num_ranks)

    def advance(
        self,
        row: Step,
        pattern: Pattern,
        times: CoflowTimes | MaskedTimes,
        before: Times,
        nbytes: Sizes,
        busy_until: Int64Array,
    ) -> Times:
        """Return when each rank is through with the messages of *row*; see `CoflowTimes.advance`."""
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
            self.sends.note(row, pattern, numbers, ends, after)
        else:
            np.maximum.at(after, pattern.source[numbers], ends)
        return together(after)
