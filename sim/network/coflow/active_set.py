"""The batches on a network: which links they have, whom they meet, and when their messages end.

A batch that comes to links of others at one instant becomes one with them, as long as the whole has
symmetry enough; where it has not, and where a single message comes to its links, a batch dissolves into
single messages.  No link has both.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

import numpy as np

from sim.network.coflow.active import ActiveCoflow, Arrived, Single
from sim.network.coflow.coflow import Coflow
from sim.units import Int64Array

MIN_BATCH = 12
"""Messages from which on those that set out together are a batch."""

_REMEMBERED = 16


class ActiveCoflows:
    """The batches under way.

    Args:
        capacity: of each link, in the unit of rates.
        settle_at: is called with times at which `land` must be called.
    """

    def __init__(self, capacity: list[int], settle_at: Callable[[int], None]) -> None:
        self._capacity = capacity
        self._settle_at = settle_at
        self._on_link = np.zeros(len(capacity) + 1, dtype=np.int64)  # the last stands for no link
        self._batches: dict[int, ActiveCoflow] = {}
        self._ends: dict[int, list[int]] = {}
        self._num_begun = 0
        self._joined: OrderedDict[tuple[int, int], tuple[Coflow, Coflow, Coflow]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._batches)

    def bar(self, link: int) -> None:
        """Keep batches off *link*, which is no longer as the topology says."""
        self._on_link[link] = -1

    def land(self, now: int) -> list[tuple[Arrived, Int64Array | None]]:
        """Return who is to be told of what ends at *now*; free the links of batches that are through."""
        landed: list[tuple[Arrived, Int64Array | None]] = []
        for number in self._ends.pop(now, ()):
            batch = self._batches.get(number)
            if batch is not None:
                landed += batch.ended_at(now)
                if int(batch.ends_ps.max()) == now:
                    self._take_off(number)
        return landed

    def depart(self, departing: list[ActiveCoflow], is_free: Callable[[Coflow], bool]) -> Iterator[Single]:
        """Let batches take to their links now; yield what must go by itself.

        Args:
            departing: begin now.
            is_free: whether no single message is on the links of a coflow.
        """
        new: set[int] = set()
        for batch in departing:
            now = batch.start_ps
            there = self._on_link[batch.coflow.links]
            met = [number for number in np.unique(there).tolist() if number] if there.any() else []
            small = len(batch.coflow) < MIN_BATCH and not met
            if small or -1 in met or not is_free(batch.coflow):
                yield from self._singles(batch, now)
                for number in met:
                    if number > 0:
                        new.discard(number)
                        yield from self._dissolve(number, now)
                continue
            whole: ActiveCoflow | None = batch
            for number in met:
                new.discard(number)
                other = self._take_off(number)
                one = None if whole is None else self._one_of(other, whole, now)
                if one is None:
                    yield from self._singles(other, now)
                    if whole is not None:
                        yield from self._singles(whole, now)
                whole = one
            if whole is not None:
                new.add(self._put(whole))
        for number in sorted(new):
            batch = self._batches[number]
            if batch.work_out():
                for end in batch.end_times():
                    self._ends.setdefault(end, []).append(number)
                    self._settle_at(end)
            else:
                yield from self._dissolve(number, batch.start_ps)

    def disturb(self, link: int, now: int) -> Iterator[Single]:
        """Yield what a batch on *link*, if there is one, dissolves into."""
        number = int(self._on_link[link])
        if number > 0:
            yield from self._dissolve(number, now)

    def _one_of(self, first: ActiveCoflow, second: ActiveCoflow, now: int) -> ActiveCoflow | None:
        """Return two batches as one that begins *now*; None where too little symmetry is left."""
        if first.is_fresh(now) and second.is_fresh(now):
            return first.joined(second, self._join(first.coflow, second.coflow))
        rests = [one if one.start_ps == now else one.remainder(now) for one in (first, second)]
        if rests[0] is None or rests[1] is None:
            return None
        return rests[0].with_amounts().followed_by(rests[1].with_amounts())

    def _join(self, first: Coflow, second: Coflow) -> Coflow:
        """Return the coflow of both; those that meet once often meet again."""
        key = id(first), id(second)
        if key not in self._joined:
            self._joined[key] = first, second, first.joined(second)
            if len(self._joined) > _REMEMBERED:
                self._joined.popitem(last=False)
        self._joined.move_to_end(key)
        return self._joined[key][2]

    def _put(self, batch: ActiveCoflow) -> int:
        self._num_begun += 1
        self._batches[self._num_begun] = batch
        self._on_link[batch.coflow.links] = self._num_begun
        self._on_link[-1] = 0
        return self._num_begun

    def _take_off(self, number: int) -> ActiveCoflow:
        batch = self._batches.pop(number)
        self._on_link[batch.coflow.links] = 0
        return batch

    def _dissolve(self, number: int, now: int) -> Iterator[Single]:
        yield from self._singles(self._take_off(number), now)

    def _singles(self, batch: ActiveCoflow, now: int) -> Iterator[Single]:
        yield from batch.singles(now, self._capacity)
