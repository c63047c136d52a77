"""Rows that repeat: many alike after each other, of which only the first and the last are worked out.

What a row makes of the times at which ranks are ready moves with these: all ranks later by some time, and
all are through later by that.  So once two rows have each taken the same time from every rank, every further
one with the same messages of the same sizes does, and finds links as free as the last one did.  A ring, for
instance, is as slow everywhere as at its slowest link from when that has held up all ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from collectives.program.chunking import Chunking
from collectives.program.rows import MostlyEqual, Pattern, Sizes
from collectives.simulation.engines.coflow_times import CoflowTimes, Times
from collectives.simulation.engines.masked_times import MaskedTimes
from collectives.simulation.engines.sibling_rows import SiblingPattern
from sim.units import Int64Array


def repeated_rows(
    rows: Iterable[tuple[Any, Pattern | SiblingPattern]], chunking: Chunking
) -> Iterator[tuple[Pattern | SiblingPattern, Sizes, int]]:
    """Yield patterns of rows and sizes of their messages, and how many rows on end have these."""
    before: tuple[Pattern | SiblingPattern, Sizes] | None = None
    count = 0
    for row, pattern in rows:
        sizes = pattern.nbytes(row, chunking)
        if before is not None and pattern is before[0] and _are_same(sizes, before[1]):
            count += 1
            continue
        if before is not None:
            yield *before, count
        before, count = (pattern, sizes), 1
    if before is not None:
        yield *before, count


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


def _are_same(sizes: Sizes, others: Sizes) -> bool:
    """Return whether sizes are certainly equal."""
    if isinstance(sizes, MostlyEqual) and isinstance(others, MostlyEqual):
        return sizes == others
    return sizes is others


def _same_for_all(before: Times, after: Times) -> int | None:
    """Return by how much *after* is later, if that is the same for all ranks."""
    later = np.asarray(after) - before
    first = int(later.flat[0])
    return first if (later == first).all() else None
