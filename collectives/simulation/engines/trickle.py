"""A few messages of a passage, one by one: where most of a row is empty, arrays cost more than they save."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from collectives.errors import NotExactError
from collectives.program.rows import Sizes
from collectives.simulation.engines.coflow_times import MEETS_EARLIER, Passage, Times, together
from sim.units import Int64Array, transfer_ps

MAX_TRICKLE = 16
"""Messages up to which one by one is faster."""


class Trickle:
    """Some messages of *whole*, none of which shares a link with another; works as a `Passage` does.

    Attributes:
        longest_ps: of the messages last under way, from both ends being ready to their last byte.
    """

    def __init__(self, whole: Passage, messages: Int64Array) -> None:
        ends = whole.source[messages], whole.destination[messages]
        self._whole = whole
        self._ends = list(zip(*(end.tolist() for end in ends), strict=True))
        self._links = whole.coflow.links[messages].tolist()
        self._latency_ps = whole.coflow.latency_ps[messages].tolist()
        self._bandwidth = whole.coflow.narrowest[messages].tolist()
        self.longest_ps = 0

    def __len__(self) -> int:
        return len(self._ends)

    @cached_property
    def num_messages(self) -> Int64Array:
        """How many each rank sends and receives, shape (num_ranks,)."""
        counts: Int64Array = np.bincount(
            np.array(self._ends, dtype=np.int64).ravel(), minlength=self._whole.num_ranks
        )
        return counts

    def advance(self, ready: Times, nbytes: Sizes, busy_until: Int64Array) -> Times:
        """Return when each rank is through with its messages; see `Passage.advance`.

        Raises:
            NotExactError: a message meets one of an earlier step on a link.
        """
        assert isinstance(nbytes, np.ndarray)
        before = np.full(self._whole.num_ranks, ready) if isinstance(ready, int) else ready
        after, no_link = before.copy(), len(busy_until) - 1
        for number, ((source, destination), size) in enumerate(zip(self._ends, nbytes.tolist(), strict=True)):
            begin = int(max(before[source], before[destination]))
            taken = self._latency_ps[number] + transfer_ps(size, self._bandwidth[number])
            for link in self._links[number]:
                if link != no_link:
                    if begin + self._latency_ps[number] < busy_until[link]:
                        raise NotExactError(MEETS_EARLIER)
                    busy_until[link] = begin + taken
            for rank in (source, destination):
                after[rank] = max(after[rank], begin + taken)
            self.longest_ps = max(self.longest_ps, taken)
        return together(after)

    def leave(self, busy_until: Int64Array) -> None:
        """Do nothing: the links know already."""
