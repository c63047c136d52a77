"""The messages of a row as they move the times of their ranks: who waits for whom, and until when.

A passage is a `sim.flight.Flight` between members of a group.  It takes the time at which each rank is
ready and returns the time at which each has sent and received its messages; where two messages would
meet in a way that the sizes alone do not settle, it refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from collectives.errors import NotExactError
from collectives.rows import MostlyEqual, Sizes
from sim.flight import Flight
from sim.topology import Topology
from sim.units import Int64Array

Times: TypeAlias = "int | Int64Array"
"""Of all ranks, in picoseconds: one number where they are equally far, else one for each."""

_ONE_AFTER_ANOTHER = "messages of a step reach a shared link one after another; use engine='events'"


class Passage:
    """Messages from *source* to *destination*, ranks of a group of which rank r is at ``hosts[r]``.

    Attributes:
        num_messages: that each rank sends and receives, shape (num_ranks,).
        longest_ps: of the messages last under way, from both ends being ready to their last byte.
    """

    def __init__(
        self, topology: Topology, hosts: Int64Array, source: Int64Array, destination: Int64Array
    ) -> None:
        num_ranks = len(hosts)
        self.source, self.destination = source, destination
        self.flight = Flight.between(topology, hosts[source], hosts[destination])
        self.num_messages: Int64Array = np.bincount(source, minlength=num_ranks) + np.bincount(
            destination, minlength=num_ranks
        )
        self.longest_ps = 0
        self._num_ranks = num_ranks
        self._once = _is_unique(source) and _is_unique(destination)
        self._came_from = _inverse(source, destination, num_ranks)
        self._together = self.flight.is_together(self.flight.latency_ps)
        self._usual: _Usual | None = None
        self._ends: Int64Array | None = None  # of the last row, where ranks were not equally far

    def advance(self, ready: Times, nbytes: Sizes, busy_until: Int64Array) -> Times:
        """Return when each rank is through with its messages.

        Args:
            ready: when each rank posts them.
            nbytes: of each message; none is empty.
            busy_until: when the last message of earlier rows leaves each link; up to date but for
                messages of this very passage, and where all ranks are equally far.

        Raises:
            NotExactError: messages meet on a link, and not from one instant on.
        """
        if isinstance(ready, int):
            if not self._together:
                raise NotExactError(_ONE_AFTER_ANOTHER)
            completion = self._completion(nbytes)
            # Where all are through at once, whatever comes next finds the links free.
            self._ends = None if isinstance(completion, int) else ready + self._taken(nbytes)
            if self.flight.shares:
                self.leave(busy_until)
            return ready + completion
        return self._advance_each(ready, self._taken(nbytes), busy_until)

    def _advance_each(self, ready: Int64Array, taken: Int64Array, busy_until: Int64Array) -> Times:
        if self._came_from is not None:
            begin = np.maximum(ready, ready[self.destination])
        else:
            begin = np.maximum(ready[self.source], ready[self.destination])
        if self.flight.shares or self._ends is None:
            self._check_links(begin + self.flight.latency_ps, busy_until)
        end: Int64Array = begin + taken
        self._ends = end
        if self.flight.shares:
            self.leave(busy_until)
        if self._came_from is not None:
            return np.maximum(end, end[self._came_from])
        if self._once:
            after = ready.copy()
            after[self.source] = end  # no earlier than before, as a message waits for both its ends
            after[self.destination] = np.maximum(after[self.destination], end)
            return after
        after = ready.copy()
        np.maximum.at(after, self.source, end)
        np.maximum.at(after, self.destination, end)
        return after

    def leave(self, busy_until: Int64Array) -> None:
        """Write into *busy_until* when the messages last under way leave their links."""
        if self._ends is None:
            return
        for links in self.flight.links.T:
            if self.flight.shares:
                np.maximum.at(busy_until, links, self._ends)
            else:
                busy_until[links] = self._ends
        busy_until[-1] = 0
        self._ends = None

    def _check_links(self, begin: Int64Array, busy_until: Int64Array) -> None:
        if self.flight.shares and not self.flight.is_together(begin):
            raise NotExactError(_ONE_AFTER_ANOTHER)
        if any((begin < busy_until[links]).any() for links in self.flight.links.T):
            raise NotExactError("a message meets one of an earlier step on a link; use engine='events'")

    def _completion(self, nbytes: Sizes) -> Times:
        """Return after what time each rank is through, where all post at once."""
        if isinstance(nbytes, MostlyEqual):
            usual = self._usual_of(nbytes.common)
            if not nbytes.others or (usual.alike and self._all_wait(nbytes)):
                return usual.completion
        return self._through(self._taken(nbytes))

    def _taken(self, nbytes: Sizes) -> Int64Array:
        """Return what each message takes, with its latency."""
        if isinstance(nbytes, MostlyEqual) and (not nbytes.others or not self.flight.shares):
            taken = self._usual_of(nbytes.common).taken
            if nbytes.others:
                taken = taken.copy()
                for message, size in nbytes.others.items():
                    taken[message] = self.flight.latency_ps[message] + self.flight.alone_ps(message, size)
            return taken
        taken = self._solve(nbytes.over(len(self.flight)) if isinstance(nbytes, MostlyEqual) else nbytes)
        self.longest_ps = int(taken.max(initial=0))
        return taken

    def _usual_of(self, nbytes: int) -> _Usual:
        """Return what messages of one size take; it is kept, as the size seldom changes."""
        if self._usual is None or self._usual.nbytes != nbytes:
            taken = self._solve(nbytes)
            self._usual = _Usual(nbytes, taken, self._through(taken), bool((taken == taken[0]).all()))
            self.longest_ps = int(taken.max(initial=0))
        return self._usual

    def _all_wait(self, nbytes: MostlyEqual) -> bool:
        """Return whether messages of other sizes are shorter, and both their ends have usual ones too."""
        if self.flight.shares or max(nbytes.others.values()) > nbytes.common:
            return False
        numbers = list(nbytes.others)
        ends = [*self.source[numbers].tolist(), *self.destination[numbers].tolist()]
        return all(self.num_messages[rank] > ends.count(rank) for rank in ends)

    def _solve(self, nbytes: int | Int64Array) -> Int64Array:
        durations = self.flight.durations_ps(nbytes)
        if durations is None:
            raise NotExactError("messages share links with too little symmetry; use engine='events'")
        taken: Int64Array = durations + self.flight.latency_ps
        return taken

    def _through(self, taken: Int64Array) -> Times:
        if self._came_from is not None:
            after = np.maximum(taken, taken[self._came_from])
        else:
            after = np.zeros(self._num_ranks, dtype=np.int64)
            np.maximum.at(after, self.source, taken)
            np.maximum.at(after, self.destination, taken)
        return together(after)


@dataclass(frozen=True)
class _Usual:
    """What messages of one size take.

    Attributes:
        nbytes: their size.
        taken: of each, with its latency.
        completion: when each rank is through with its messages, if all post at 0.
        alike: whether all take the same.
    """

    nbytes: int
    taken: Int64Array
    completion: Times
    alike: bool


def together(times: Any) -> Times:
    """Return *times* of ranks as one number if they are equal."""
    if isinstance(times, int):
        return times
    first = times[0]
    return times if (times != first).any() else int(first)


def _is_unique(ranks: Int64Array) -> bool:
    return bool(np.unique(ranks).size == ranks.size)


def _inverse(source: Int64Array, destination: Int64Array, num_ranks: int) -> Int64Array | None:
    """Return who sends to each rank, if every rank r sends message r and receives one; else None."""
    if len(source) != num_ranks or not np.array_equal(source, np.arange(num_ranks)):
        return None
    return np.argsort(destination) if _is_unique(destination) else None
