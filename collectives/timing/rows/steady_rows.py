"""Rows that repeat: many alike after each other, of which only the first and the last are worked out.

What a row makes of the times at which ranks are ready moves with these: all ranks later by some time, and
all are through later by that.  So once two rows have each taken the same time from every rank, every further
one with the same messages of the same sizes does, and finds links as free as the last one did.  A ring, for
instance, is as slow everywhere as at its slowest link from when that has held up all ranks.
"""

from __future__ import annotations

import numpy as np

from collectives.timing.rows.coflow_times import CoflowTimes, Times
from collectives.timing.rows.masked_times import MaskedTimes
from collectives.timing.rows.pattern import Sizes
from sim.units import Int64Array


def advance_repeatedly(
    times: CoflowTimes | MaskedTimes, ready: Times, sizes: Sizes, busy_until: Int64Array, count: int
) -> Times:
    """Return when each rank is through with *count* equal rows; see `CoflowTimes.advance`."""
    taken: int | None = None
    while count:
        before, ready = ready, times.advance(ready, sizes, busy_until)
        count -= 1
        taken_before, taken = taken, _same_for_all(before, ready)
        if taken is not None and taken == taken_before and count > 1:
            ready, count = ready + taken * (count - 1), 1
    return ready


def _same_for_all(before: Times, after: Times) -> int | None:
    """Return by how much *after* is later, if that is the same for all ranks."""
    later = np.asarray(after) - before
    first = int(later.flat[0])
    return first if (later == first).all() else None
