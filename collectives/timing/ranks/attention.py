"""Attention of ranks to their collectives: the times at which those that compute call.

Over a transport that makes progress on calls alone (`collectives.execution.transport_model`), a step that is
complete is noticed, and the next one posted, when the rank next calls: at a hook of the backward pass, when
it launches a bucket, or all the while that it waits.  All ranks call at the same times here, as one reducer
stands for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collectives.timing.rows.coflow_times import Times, together
from sim.units import Int64Array


@dataclass(frozen=True)
class Attention:
    """When ranks look after what is in flight: periods, after the last of which they do so for good.

    Attributes:
        periods: beginning and end of each in picoseconds, both included, in order and apart; those of a
            single call begin and end at once.
        from_ps: when the last period begins, which does not end.
    """

    periods: tuple[tuple[int, int], ...]
    from_ps: int

    @classmethod
    def of(cls, calls: Sequence[tuple[int, int]], from_ps: int) -> Attention:
        """Return the attention of ranks with *calls* from a time to a time, in order; some may touch."""
        merged: list[tuple[int, int]] = []
        for since_ps, until_ps in calls:
            if since_ps >= from_ps:
                break
            if merged and since_ps <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(until_ps, merged[-1][1])
            else:
                merged.append((since_ps, until_ps))
        if merged and merged[-1][1] >= from_ps:
            from_ps = merged.pop()[0]
        return cls(tuple(merged), from_ps)

    def next_ps(self, now_ps: int) -> int:
        """Return when a rank next looks, *now_ps* included."""
        place = int(np.searchsorted(self._ends, now_ps))
        return max(now_ps, int(self._begins[place]))

    def noticed(self, times: Times) -> Times:
        """Return when each rank notices what was complete at *times*."""
        if isinstance(times, int):
            return self.next_ps(times)
        return together(np.maximum(times, self._begins[np.searchsorted(self._ends, times)]))

    def within(self, since_ps: int, until_ps: int) -> tuple[tuple[int, int], ...]:
        """Return the periods, or their parts, from one time to another, both included."""
        first, last = np.searchsorted(self._ends, since_ps), np.searchsorted(self._begins, until_ps, "right")
        periods = zip(self._begins[first:last].tolist(), self._ends[first:last].tolist(), strict=True)
        return tuple((max(begin, since_ps), min(end, until_ps)) for begin, end in periods)

    @cached_property
    def _begins(self) -> Int64Array:
        return np.array([*(begin for begin, _ in self.periods), self.from_ps], dtype=np.int64)

    @cached_property
    def _ends(self) -> Int64Array:
        return np.array([*(end for _, end in self.periods), np.iinfo(np.int64).max], dtype=np.int64)
