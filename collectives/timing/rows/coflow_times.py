"""Times of the ranks that a coflow connects: who waits for whom, and until when.

The messages of a row are a coflow (`sim.network.coflow.coflow.Coflow`) between members of a group.  From
the time at which each rank is ready follows the time at which each has sent and received its messages;
where two messages would meet in a way that the sizes alone do not settle, there is no answer.
What each special case saves: ``benchmarks/fast_paths.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from collectives.errors import NotExactError
from collectives.timing.rows.sizes import MostlyEqual, Rotating, Sizes, has_empty, of_each
from sim.network.coflow import Coflow
from sim.topology import Topology
from sim.units import Int64Array

Times: TypeAlias = "int | Int64Array"
"""Of all ranks, in picoseconds: one number where they are equally far, else one for each."""

MEETS_EARLIER = "a message meets one of an earlier step on a link; use engine='events'"
_LAST = np.iinfo(np.int64).max
_ONE_AFTER_ANOTHER = "messages of a step reach a shared link one after another; use engine='events'"


class CoflowTimes:
    """Times of the ranks that a coflow connects, row after row; `between` makes one.

    Attributes:
        coflow: the messages.
        source: rank that sends each.
        destination: rank that receives it.
        num_ranks: of the group.
        numbers: of the messages, among those of which these are some.
        longest_ps: of all messages so far, from both ends being ready to their last byte.
    """

    def __init__(
        self, coflow: Coflow, source: Int64Array, destination: Int64Array, num_ranks: int, once: bool
    ) -> None:
        self.source, self.destination = source, destination
        self.coflow = coflow
        self.num_ranks = num_ranks
        self.numbers = np.arange(len(source))
        self.longest_ps = 0
        self._once = once  # no rank sends, or receives, two of the messages
        self._is_bijection = once and np.array_equal(source, np.arange(num_ranks))
        self._together = coflow.is_together(coflow.latency_ps)
        self._one_size: _OneSize | None = None
        self._turning: tuple[Int64Array, Int64Array] | None = None  # a table of sizes, and what they take
        self._solved: tuple[int | Int64Array, Int64Array] | None = None  # the last sizes, and what they take
        self._ends: Int64Array | None = None  # of the last row, where ranks were not equally far
        self._checked = False  # the links were free when messages of this coflow first took to them

    @classmethod
    def between(
        cls,
        topology: Topology,
        hosts: Int64Array,
        source: Int64Array,
        destination: Int64Array,
        channel: int | Int64Array = 0,
    ) -> CoflowTimes:
        """Return the times of messages from *source* to *destination*; rank r is at ``hosts[r]``."""
        coflow = Coflow.between(topology, hosts[source], hosts[destination], channel)
        return cls(coflow, source, destination, len(hosts), _is_unique(source) and _is_unique(destination))

    def select(self, messages: Int64Array) -> CoflowTimes:
        """Return the times of some of the *messages* alone."""
        coflow = self.coflow.select(messages)
        ends = self.source[messages], self.destination[messages]
        selected = CoflowTimes(coflow, *ends, self.num_ranks, self._once)
        selected.numbers = messages
        return selected

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def came_from(self) -> Int64Array:
        """Who sends to each rank, where every rank sends one message and receives one."""
        return np.argsort(self.destination)

    @cached_property
    def _num_messages(self) -> Int64Array:
        """How many each rank sends and receives, shape (num_ranks,)."""
        counts: Int64Array = np.bincount(self.source, minlength=self.num_ranks)
        return counts + np.bincount(self.destination, minlength=self.num_ranks)

    def num_messages(self, nbytes: Sizes) -> Int64Array:
        """Return how many messages of *nbytes* that are not empty each rank sends and receives."""
        if not self._some_empty(nbytes):
            return self._num_messages
        sends = (of_each(nbytes, len(self)) > 0).astype(np.int64)
        return sends + sends[self.came_from]

    def moving(self, nbytes: Sizes) -> tuple[Int64Array, Int64Array]:
        """Return who sends and who receives each message of *nbytes* that is not empty."""
        if not self._some_empty(nbytes):
            return self.source, self.destination
        moves = of_each(nbytes, len(self)) > 0
        return self.source[moves], self.destination[moves]

    def advance(self, ready: Times, nbytes: Sizes, busy_until: Int64Array) -> Times:
        """Return when each rank is through with its messages.

        Args:
            ready: when each rank posts them.
            nbytes: of each message; only of a permutation may some be empty.
            busy_until: when the last message of earlier rows leaves each link; up to date but for
                messages of this very coflow, and where all ranks are equally far.

        Raises:
            NotExactError: messages meet on a link, and not from one instant on.
        """
        masked = self._some_empty(nbytes)
        if masked or not isinstance(ready, int):
            end = self._ends_of_all(ready, nbytes, busy_until, masked)
            if not self._is_bijection:
                return self._later(over_ranks(ready, self.num_ranks).copy(), end)
            after = np.maximum(end, end[self.came_from])
            return together(np.maximum(ready, after)) if masked else after

        # Where all are through at once, whatever comes next finds the links free.
        completion = self._completion(nbytes)
        self._note(None if isinstance(completion, int) else ready + self._taken(nbytes), busy_until)
        return ready + completion

    def advance_repeatedly(self, ready: Times, nbytes: Sizes, busy_until: Int64Array, count: int) -> Times:
        """Return when each rank is through with *count* equal rows; see `advance`.

        What a row makes of the times at which ranks are ready moves with these.  So once two rows have each
        taken the same time from every rank, every further one does, and finds links as free as the last one
        did.  A ring, for instance, is as slow everywhere as at its slowest link once that has held up all.
        """
        taken: int | None = None
        while count:
            before, ready = ready, self.advance(ready, nbytes, busy_until)
            count -= 1
            if count > 1:
                taken_before, later = taken, together(ready - before)
                taken = later if isinstance(later, int) else None
                if taken is not None and taken == taken_before:
                    ready, count = ready + taken * (count - 1), 1
        return ready

    def ends(self, ready: Times, nbytes: Sizes, busy_until: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the number and the end of each message that is not empty; see `advance`."""
        masked = self._some_empty(nbytes)
        end = self._ends_of_all(ready, nbytes, busy_until, masked)
        if not masked:
            return self.numbers, end
        moves = np.flatnonzero(end)
        return moves, end[moves]

    def end_together(self, ready: Times, nbytes: Sizes) -> bool:
        """Return whether every rank sends one message and receives one, and all end at one time."""
        if not isinstance(ready, int) or not self._is_bijection or not isinstance(nbytes, MostlyEqual):
            return False
        return bool(nbytes.common) and not nbytes.others and self._of_one_size(nbytes.common).alike

    @cached_property
    def is_permutation(self) -> bool:
        """Whether every rank sends one message and receives one, and no two share a link."""
        return self._is_bijection and not self.coflow.shares

    def _some_empty(self, nbytes: Sizes) -> bool:
        """Return whether messages of a permutation may be empty; of sizes that turn it is not found out."""
        return self.is_permutation and (isinstance(nbytes, Rotating) or has_empty(nbytes))

    def _ends_of_all(self, ready: Times, nbytes: Sizes, busy_until: Int64Array, masked: bool) -> Int64Array:
        """Return when each message ends; where sizes are *masked*, 0 for those that are empty."""
        taken = self._taken(nbytes)
        if isinstance(ready, int) and not masked:
            end: Int64Array = ready + taken
            if not self._together:
                raise NotExactError(_ONE_AFTER_ANOTHER)
        else:
            each = over_ranks(ready, self.num_ranks)
            begin = np.maximum(each if self._is_bijection else each[self.source], each[self.destination])
            moves = of_each(nbytes, len(self)) > 0 if masked else np.True_
            if self.coflow.shares or not self._checked:
                starts = begin + self.coflow.latency_ps
                self._check_links(np.where(moves, starts, _LAST) if masked else starts, busy_until)
            end = begin + taken
            if masked:
                end = np.where(moves, end, 0)
                self._ends = end if self._ends is None else np.maximum(self._ends, end)
                return end
        self._note(end, busy_until)
        return end

    def _note(self, ends: Int64Array | None, busy_until: Int64Array) -> None:
        """Note when the messages of a row leave the links, which were free when they took to them."""
        self._checked = True
        self._ends = ends
        if self.coflow.shares:
            self.leave(busy_until)

    def _later(self, after: Int64Array, end: Int64Array) -> Int64Array:
        """Let the ends of messages be no earlier than *end* in *after*."""
        if self._once:
            after[self.source] = np.maximum(after[self.source], end)
            after[self.destination] = np.maximum(after[self.destination], end)
        else:
            np.maximum.at(after, self.source, end)
            np.maximum.at(after, self.destination, end)
        return after

    def leave(self, busy_until: Int64Array) -> None:
        """Write into *busy_until* when the messages last under way leave their links."""
        self._checked = False
        if self._ends is None:
            return
        for links in self.coflow.links.T:
            if self.coflow.shares:
                np.maximum.at(busy_until, links, self._ends)
            else:
                busy_until[links] = np.maximum(busy_until[links], self._ends)
        busy_until[-1] = 0
        self._ends = None

    def _check_links(self, begin: Int64Array, busy_until: Int64Array) -> None:
        if self.coflow.shares and not self.coflow.is_together(begin):
            raise NotExactError(_ONE_AFTER_ANOTHER)
        if any((begin < busy_until[links]).any() for links in self.coflow.reach.T):
            raise NotExactError(MEETS_EARLIER)

    def _completion(self, nbytes: Sizes) -> Times:
        """Return after what time each rank is through, where all post at once."""
        if not self._together:
            raise NotExactError(_ONE_AFTER_ANOTHER)
        if isinstance(nbytes, MostlyEqual):
            usual = self._of_one_size(nbytes.common)
            if not nbytes.others or (usual.alike and self._all_wait_for_usual(nbytes)):
                return usual.completion
        return self._through(self._taken(nbytes))

    def _taken(self, nbytes: Sizes) -> Int64Array:
        """Return what each message takes, with its latency."""
        if isinstance(nbytes, MostlyEqual) and (not nbytes.others or not self.coflow.shares):
            taken = self._of_one_size(nbytes.common).taken
            if nbytes.others:
                taken = taken.copy()
                for message, size in nbytes.others.items():
                    taken[message] = self.coflow.latency_ps[message] + self.coflow.alone_ps(message, size)
            return taken
        if isinstance(nbytes, Rotating) and self._all_alike:
            return self._turned(nbytes)
        return self._solve(of_each(nbytes, len(self.coflow)))

    @cached_property
    def _all_alike(self) -> bool:
        """Whether messages of one size take the same, whoever sends them."""
        if self.coflow.shares or not len(self.coflow):
            return False
        latency_ps, bandwidth = self.coflow.latency_ps, self.coflow.narrowest
        return bool((latency_ps == latency_ps[0]).all() and (bandwidth == bandwidth[0]).all())

    def _turned(self, nbytes: Rotating) -> Int64Array:
        """Return what each message takes, from times that turn as the sizes do."""
        if self._turning is None or self._turning[0] is not nbytes.table:
            sizes = nbytes.table[: len(self.coflow)]
            self._turning = nbytes.table, np.tile(self._solve(sizes), 2)
        return self._turning[1][nbytes.turn : nbytes.turn + len(self.coflow)]

    def _of_one_size(self, nbytes: int) -> _OneSize:
        """Return what messages of one size take; it is kept, as the size seldom changes."""
        if self._one_size is None or self._one_size.nbytes != nbytes:
            taken = self._solve(nbytes)
            self._one_size = _OneSize(nbytes, taken, self._through(taken), bool((taken == taken[0]).all()))
        return self._one_size

    def _all_wait_for_usual(self, nbytes: MostlyEqual) -> bool:
        """Return whether messages of other sizes are shorter, and both their ends have usual ones too."""
        if self.coflow.shares or max(nbytes.others.values()) > nbytes.common:
            return False
        numbers = list(nbytes.others)
        ends = [*self.source[numbers].tolist(), *self.destination[numbers].tolist()]
        return all(self._num_messages[rank] > ends.count(rank) for rank in ends)

    def _solve(self, nbytes: int | Int64Array) -> Int64Array:
        if self._solved is not None and self._solved[0] is nbytes:
            return self._solved[1]
        durations = self.coflow.durations_ps(nbytes)
        if durations is None:
            raise NotExactError("messages share links with too little symmetry; use engine='events'")
        taken: Int64Array = durations + self.coflow.latency_ps
        self.longest_ps = max(self.longest_ps, int(taken.max(initial=0)))
        self._solved = nbytes, taken
        return taken

    def _through(self, taken: Int64Array) -> Times:
        if self._is_bijection:
            return together(np.maximum(taken, taken[self.came_from]))
        return together(self._later(np.zeros(self.num_ranks, dtype=np.int64), taken))


@dataclass(frozen=True)
class _OneSize:
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


def over_ranks(times: Times, num_ranks: int) -> Int64Array:
    """Return *times* as one for each rank."""
    return np.full(num_ranks, times, dtype=np.int64) if isinstance(times, int) else times


def _is_unique(ranks: Int64Array) -> bool:
    return bool(np.unique(ranks).size == ranks.size)
