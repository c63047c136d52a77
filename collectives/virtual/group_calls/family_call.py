"""One call by the groups of a family: who has come to it, when, who is through, and who is told.

Groups of a family may come at different times; those that come together are worked out together.  While a
call meets no others on its links, the outcome is known as soon as all ranks of a group have come
(`collectives.virtual.group_calls.alone`); when it meets some, its messages are under way beside theirs on a
network (`collectives.virtual.group_calls.congestion`), from its beginning on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from collectives.errors import ProgramError
from collectives.virtual.folding.partitions import Hosts
from collectives.virtual.group_calls.family import CallFacts, Family
from collectives.virtual.group_calls.footprint import Footprint
from collectives.virtual.group_calls.on_network import SplitsOfRank
from collectives.virtual.streams.score import Through
from collectives.virtual.time_outs import too_late
from sim.units import Int64Array


class FamilyCall:
    """What is known of one call; decides nothing.

    Attributes:
        begins: when which places came to it, in order, but for those that are forgotten.
        starts_ps: when each place came, -1 for those that have not.
        is_through: which places are through.
        num_in_flight: how many have come and are not through.
        unsettled: groups of which some ranks have come, and the outcome is not known.
    """

    def __init__(self, family: Family, facts: CallFacts, footprint: Footprint, holder: int) -> None:
        self.family = family
        self.facts = facts
        self.footprint = footprint
        self.holder = holder
        self.begins: list[tuple[int, Int64Array]] = []
        self.starts_ps = np.full(len(family), -1, dtype=np.int64)
        self.is_through = np.zeros(len(family), dtype=bool)
        self.num_in_flight = 0
        self.unsettled = np.zeros(family.num_groups, dtype=bool)
        self._splits: list[SplitsOfRank | None] = [None] * len(family) if facts.splits is not None else []
        self._listener = np.full(len(family), -1, dtype=np.int64)
        self._listeners: list[tuple[Through, tuple[int, ...], int]] = []
        self._num_come = np.zeros(family.num_groups, dtype=np.int64)
        self._first_ps: int | None = None

    def come(
        self, now_ps: int, ranks: tuple[int, ...], places: Int64Array, facts: CallFacts, through: Through
    ) -> None:
        """Note that *ranks*, which have these *places*, come now.

        Raises:
            ProgramError: one of them has come before.
            CollectiveTimeoutError: the first of its group has waited too long for one of them.
        """
        if self._first_ps is None:
            self._first_ps = now_ps
        if (self.starts_ps[places] >= 0).any():
            raise ProgramError(f"{facts.call}: a rank of {ranks} comes to it twice")
        self.begins.append((now_ps, places))
        self.starts_ps[places] = now_ps
        self.num_in_flight += len(places)
        self._listener[places] = len(self._listeners)
        self._listeners.append((through, ranks, len(places)))
        groups = places // self.family.group_size
        self._num_come += np.bincount(groups, minlength=self.family.num_groups)
        if facts.limit_ps is not None and now_ps - self._first_ps > facts.limit_ps:
            self._check_in_time(now_ps, places, facts.limit_ps)
        self.unsettled[groups] = True
        if facts.splits is not None:
            for place in places.tolist():
                self._splits[place] = facts.splits

    def _check_in_time(self, now_ps: int, places: Int64Array, limit_ps: int) -> None:
        """Check that nobody has waited longer than *limit_ps* for the ranks at *places*, which come now."""
        size = self.family.group_size
        starts_ps = self.starts_ps.reshape(-1, size)
        first_ps = np.where(starts_ps < 0, now_ps, starts_ps).min(axis=1)
        late = places[now_ps - first_ps[places // size] > limit_ps]
        if len(late):
            group, place = divmod(int(late[0]), size)
            members = self.family.members[group * size :][:size].tolist()
            first = members[int(np.argmax(starts_ps[group] == first_ps[group]))]
            late_ps = now_ps - int(first_ps[group])
            raise too_late(self.facts.call.at(members), first, members[place], late_ps, limit_ps)

    @property
    def complete(self) -> Int64Array:
        """The groups that are not settled and of which all ranks have come."""
        return np.flatnonzero(self.unsettled & (self._num_come == self.family.group_size))

    @property
    def num_groups_begun(self) -> int:
        """How many groups have ranks that have come."""
        return int(np.count_nonzero(self._num_come))

    @property
    def is_half_come(self) -> bool:
        """Whether some ranks of a group have come and others have not, or are through when the last come."""
        half = self._num_come < self.family.group_size
        half |= self.is_through.reshape(self.family.num_groups, -1).any(axis=1)
        return bool((self.unsettled & half).any())

    @property
    def is_over(self) -> bool:
        """Whether all members of the family are through."""
        return bool(self.is_through.all())

    def splits_of(self, places: Int64Array) -> tuple[SplitsOfRank | None, ...]:
        """Return the splits of the ranks at *places*; nothing where parts are equal."""
        return tuple(self._splits[place] for place in places.tolist()) if self._splits else ()

    def splits_at(self, place: int) -> SplitsOfRank | None:
        """Return the splits of the rank at *place*, which has come; None where parts are equal."""
        return self._splits[place] if self._splits else None

    def finish(self, places: Int64Array) -> list[Callable[[], None]]:
        """Note that the ranks at *places* are through; return what tells those who wait for them."""
        fresh = places[~self.is_through[places]]
        self.is_through[fresh] = True
        self.num_in_flight -= len(fresh)
        self.unsettled[self.is_through.reshape(self.family.num_groups, -1).all(axis=1)] = False
        return list(self._tell(fresh))

    def forget(self, places: Int64Array) -> None:
        """Forget when the ranks at *places* came: they are through, and all that they met on links is."""
        gone = np.zeros(len(self.family), dtype=bool)
        gone[places] = True
        rest = [(begin_ps, own[~gone[own]]) for begin_ps, own in self.begins]
        self.begins = [(begin_ps, own) for begin_ps, own in rest if len(own)]

    def _tell(self, places: Int64Array) -> Iterator[Callable[[], None]]:
        listener = self._listener[places]
        for number in np.unique(listener).tolist():
            through, ranks, num_ranks = self._listeners[number]
            own = places[listener == number]
            those = ranks if len(own) == num_ranks else tuple(self.family.members[own].tolist())
            yield partial(through, those, self._met_ps(min(those)))

    def _met_ps(self, rank: int) -> int:
        """Return when the last rank came so far of those with which *rank* has the call."""
        size = self.family.group_size
        group = int(self.family.places((rank,))[0]) // size
        return int(self.starts_ps[group * size :][:size].max())

    def waiting(self) -> Iterator[tuple[Hosts, list[int]]]:
        """Yield groups in which ranks have come and are not through, with these, numbered in the group."""
        size = self.family.group_size
        waits = ((self.starts_ps >= 0) & ~self.is_through).reshape(-1, size)
        for group in np.flatnonzero(waits.any(axis=1)).tolist():
            yield self.family.in_whole_group(group, np.flatnonzero(waits[group]).tolist())
