"""Times of a permutation of which some messages are empty: those that move, among all."""

from __future__ import annotations

import numpy as np

from collectives.timing.rows.coflow_times import CoflowTimes, Times, over_ranks
from collectives.timing.rows.pattern import Sizes, of_each
from sim.units import Int64Array


class MaskedTimes:
    """The times of *whole*, a permutation, with some messages empty; used as `CoflowTimes` is.

    Args:
        whole: all messages, so that those of each row need no coflow of their own.
        nbytes: of each message.
    """

    def __init__(self, whole: CoflowTimes, nbytes: Sizes) -> None:
        self._whole = whole
        self._nbytes = nbytes

    def __len__(self) -> int:
        return len(self._whole)

    @property
    def longest_ps(self) -> int:
        """The longest of all messages so far, from both ends being ready to their last byte."""
        return self._whole.longest_ps

    @property
    def num_messages(self) -> Int64Array:
        """How many each rank sends and receives, shape (num_ranks,)."""
        sends = (of_each(self._nbytes, len(self)) > 0).astype(np.int64)
        return sends + sends[self._whole.came_from]

    def advance(self, ready: Times, nbytes: Sizes, busy_until: Int64Array) -> Times:
        """Return when each rank is through with its messages; see `CoflowTimes.advance`."""
        return self._whole.advance_masked(ready, nbytes, busy_until)

    def end_together(self, ready: Times, nbytes: Sizes) -> bool:
        """Return False: ranks without a message are through at once."""
        return False

    def ends(self, ready: Times, nbytes: Sizes, busy_until: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the number and the end of each message that moves; see `CoflowTimes.ends`."""
        end = self._whole.masked_ends(over_ranks(ready, len(self)), nbytes, busy_until)
        moves = np.flatnonzero(end)
        return moves, end[moves]
