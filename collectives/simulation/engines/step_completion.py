"""Completion of the steps of all ranks at once, by the rule of a transport that is not the ideal one.

A rank may know of what it receives some time after its last byte, and may go on while what it has sent is
under way (`collectives.execution.transport_model`).  As long as nothing is written meanwhile that a send
still reads, when a rank goes on follows from the ends of its messages alone.  Whether it is written depends
on chunks, which are not looked at here: a rank that takes part in anything else while what it has sent is
under way has `NotExactError` raised.  While ranks keep in step and each sends and receives one message of one
size, all end together, so nothing ever is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collectives.errors import NotExactError
from collectives.execution.transport_model import TransportModel
from collectives.program import Local, Step
from collectives.program.rows import Sizes
from collectives.simulation.engines.coflow_times import CoflowTimes, Times, over_ranks, together
from collectives.simulation.engines.masked_times import MaskedTimes
from sim.units import Int64Array


class StepCompletion:
    """When the ranks of a collective complete their steps, row after row.

    Args:
        transport_model: the rule.
        arrivals_ps: from the last byte of a message until each rank knows of it; None: at once.
        num_ranks: in the group.

    Attributes:
        longest_arrival_ps: the most of *arrivals_ps*.
    """

    def __init__(
        self, transport_model: TransportModel, arrivals_ps: Int64Array | None, num_ranks: int
    ) -> None:
        self._late_sends = transport_model.late_sends
        self._num_ranks = num_ranks
        self._arrival_ps: Times = 0 if arrivals_ps is None else together(arrivals_ps)
        self.longest_arrival_ps = 0 if arrivals_ps is None else int(arrivals_ps.max(initial=0))
        self._under_way_until: Int64Array | None = None  # of what each rank has sent, if any is

    def advance(
        self,
        row: Step,
        times: CoflowTimes | MaskedTimes,
        before: Times,
        nbytes: Sizes,
        busy_until: Int64Array,
    ) -> Times:
        """Return when each rank is through with the messages of *row*; see `CoflowTimes.advance`."""
        if isinstance(self._arrival_ps, int) and times.end_together(before, nbytes):
            return times.advance(before, nbytes, busy_until) + self._arrival_ps

        source, destination, ends = times.ends(before, nbytes, busy_until)
        ready = over_ranks(before, self._num_ranks)
        sent, known = np.zeros_like(ready), np.zeros_like(ready)
        np.maximum.at(sent, source, ends)
        np.maximum.at(known, destination, ends)
        receives = known > 0
        known[receives] += over_ranks(self._arrival_ps, self._num_ranks)[receives]

        after: Int64Array = np.maximum(ready, known)
        if not self._late_sends:
            return together(np.maximum(after, sent))
        self._note_sends(row, sent, after, receives)
        return together(after)

    def check(self, row: Step, num_messages: Int64Array, ready: Times) -> None:
        """Check that no rank that takes part in *row* has sends under way when it comes to it.

        Raises:
            NotExactError: one has.
        """
        if self._under_way_until is None:
            return
        under_way = self._under_way_until > ready
        if (under_way & ((num_messages > 0) | _has_local(row))).any():
            raise NotExactError(_UNDER_WAY)
        if not under_way.any():
            self._under_way_until = None

    def drained(self, ready: Times) -> Times:
        """Return when each rank is done: what it has sent is awaited at the end."""
        if self._under_way_until is None:
            return ready
        return together(np.maximum(self._under_way_until, ready))

    def _note_sends(
        self, row: Step, sent: Int64Array, after: Int64Array, receives: npt.NDArray[np.bool_]
    ) -> None:
        """Note until when sends are under way that outlive the step."""
        under_way = sent > after
        if not under_way.any():
            return
        if (under_way & (receives | _has_local(row))).any():
            raise NotExactError(_UNDER_WAY)
        earlier = 0 if self._under_way_until is None else self._under_way_until
        self._under_way_until = np.maximum(sent, earlier)


_UNDER_WAY = "a rank goes on while what it has sent is under way; use engine='events'"


def _has_local(row: Step) -> bool:
    return any(isinstance(operation, Local) for operation in row)
