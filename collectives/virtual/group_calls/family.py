"""Families of groups: those of one size that were made together, such as all tensor-parallel groups.

A family is one array of ranks.  Rank r of the g-th group has the *place* ``g * group_size + r``.  Arrays of
the members of a family, of when they come and of when they are through, are by place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from collectives.execution.call import Call
from collectives.program import Algorithm
from collectives.program.chunking import Chunking
from collectives.virtual.folding.partitions import Hosts
from sim.units import Int64Array

Ordinal: TypeAlias = tuple[int, ...] | tuple[int, str, int]
"""Which of the groups of the same hosts it is, and which of its communicators; equal on all its ranks."""


class Family:
    """Groups of one size, no rank in two of them.

    Args:
        groups: the members of each, by number in the run.
        whole: the groups that these are parts of, and the numbers within them of the ranks here, if they are.

    Attributes:
        members: number in the run of the rank at each place.
        group_size: ranks of a group.
    """

    def __init__(
        self, groups: Sequence[Hosts], whole: tuple[Sequence[Hosts], tuple[int, ...]] | None = None
    ) -> None:
        self.groups = tuple(groups)
        self._whole = whole
        self.group_size = len(self.groups[0])
        self.members = np.array(self.groups, dtype=np.int64).reshape(-1)
        self._place = np.full(int(self.members.max()) + 2, -1, dtype=np.int64)
        self._place[self.members] = np.arange(len(self.members))
        self._known: dict[tuple[int, ...], Int64Array] = {}
        self._pairs: dict[tuple[int, int], Family] = {}

    def __len__(self) -> int:
        return len(self.members)

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return len(self.groups)

    @cached_property
    def all_places(self) -> Int64Array:
        """Every place, in order."""
        return np.arange(len(self.members))

    def places(self, ranks: tuple[int, ...]) -> Int64Array:
        """Return the place of each of *ranks*, -1 for those in none of the groups; kept, as classes last."""
        if ranks not in self._known:
            numbers = np.minimum(np.array(ranks, dtype=np.int64), len(self._place) - 1)
            places = self._place[numbers]
            everybody = len(places) == len(self.members) and bool((np.sort(places) == self.all_places).all())
            self._known[ranks] = self.all_places if everybody else places
        return self._known[ranks]

    def places_of_groups(self, groups: Int64Array) -> Int64Array:
        """Return the places of the members of *groups*, group by group."""
        if len(groups) == len(self.groups):
            return self.all_places
        return (groups[:, None] * self.group_size + np.arange(self.group_size)).reshape(-1)

    def pairs(self, source: int, destination: int) -> Family:
        """Return, of each group, the two ranks between which a message passes, as a family."""
        if (source, destination) not in self._pairs:
            pairs = [(group[source], group[destination]) for group in self.groups]
            whole = self.groups, (source, destination)
            self._pairs[source, destination] = Family(pairs, whole)
        return self._pairs[source, destination]

    def in_whole_group(self, group: int, ranks: Sequence[int]) -> tuple[Hosts, list[int]]:
        """Return the whole group of which *group* is part, and the numbers in it of *ranks* of the part."""
        if self._whole is None:
            return self.groups[group], list(ranks)
        return self._whole[0][group], [self._whole[1][rank] for rank in ranks]


@dataclass(frozen=True)
class CallFacts:
    """What one rank says of a collective or message that it calls.

    Attributes:
        call: its lane, its number in that, and what it is; ranks are numbered within the group.
        algorithm: the program of every rank: root bound, placed on nodes; for messages that of
            `collectives.communicators.point_to_point.message`.
        chunking: how the program divides what it sends.
        splits: where an all-to-all is of parts of any size: elements of each part that this rank receives,
            and of each that it sends.
        delay_ps: from a rank's coming until its first step.
        launches: whether each step of the program is launched by itself.
        limit_ps: how long the first rank that comes waits for the others; None: for ever.
    """

    call: Call
    algorithm: Algorithm
    chunking: Chunking
    splits: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    delay_ps: int = 0
    launches: bool = False
    limit_ps: int | None = None
