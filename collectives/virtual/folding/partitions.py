"""Partitions of ranks into process groups that were made together, such as those of one dimension of a mesh.

A rank makes every group of a mesh, those it is not in, too; so one rank thread tells which groups there are.
Where it calls a collective for ranks that do the same in groups of their own, the *sibling* of its group is
meant: the group in the same partition that holds the other rank.

A group joins the first partition of groups of its size in which none of its members is yet.  Groups of the
same members in the same order are told apart by their ordinal, how many there were before, and a partition
has groups of one ordinal only.  So it does not matter whether the groups of two partitions are made one
partition after the other or by turns.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

Hosts: TypeAlias = tuple[int, ...]
"""Members of a group by their numbers in the run, in the order of their numbers in the group."""


@dataclass(frozen=True, eq=False)
class Partition:
    """Groups that were made together; no rank is in two.

    Attributes:
        name: that no other has: size and ordinal of its groups, and which of such partitions it is.
        group_of: the group of each rank that is in one.
        number_of: the number of each of these ranks within its group.
        groups: in the order in which they came.
    """

    name: tuple[int, int, int]
    group_of: dict[int, Hosts] = field(default_factory=dict)
    number_of: dict[int, int] = field(default_factory=dict)
    groups: list[Hosts] = field(default_factory=list)

    def add(self, hosts: Hosts) -> None:
        """Add a group."""
        self.groups.append(hosts)
        self.group_of.update(dict.fromkeys(hosts, hosts))
        self.number_of.update(zip(hosts, range(len(hosts)), strict=True))


class Partitions:
    """The groups that the rank threads of one run have made or were told of."""

    def __init__(self) -> None:
        self._counts: defaultdict[int, Counter[Hosts]] = defaultdict(Counter)  # by rank
        self._kept: dict[Hosts, Hosts] = {}  # each group once, as thousands of ranks know all of them
        self._announced: dict[int, tuple[Hosts, int]] = {}
        self._alike: dict[tuple[int, int], list[Partition]] = {}  # by size and ordinal
        self._of: dict[tuple[Hosts, int], Partition] = {}

    def announce(self, rank: int, hosts: Hosts) -> int:
        """Note that *rank* makes, or is told of, a group of *hosts*; return the group's ordinal."""
        hosts, counts = self._kept.setdefault(hosts, hosts), self._counts[rank]
        ordinal = counts[hosts]
        counts[hosts] = ordinal + 1
        self._announced[rank] = hosts, ordinal
        if (hosts, ordinal) not in self._of:
            self._of[hosts, ordinal] = self._placed(hosts, ordinal)
        return ordinal

    def join(self, rank: int, hosts: Hosts) -> int:
        """Return the ordinal of the group of *hosts* that *rank* joins now, announced or not."""
        announced = self._announced.pop(rank, None)
        if announced is not None and announced[0] == hosts:
            return announced[1]
        ordinal = self.announce(rank, hosts)
        del self._announced[rank]
        return ordinal

    def of(self, hosts: Hosts, ordinal: int) -> Partition:
        """Return the groups that were made together with that of *hosts*, itself among them.

        They have the same ordinal.
        """
        return self._of[hosts, ordinal]

    def of_size(self, size: int) -> Iterator[Partition]:
        """Yield each partition into groups of *size*."""
        for (own_size, _), alike in self._alike.items():
            if own_size == size:
                yield from alike

    def _placed(self, hosts: Hosts, ordinal: int) -> Partition:
        """Put a new group into a partition, and return that."""
        alike = self._alike.setdefault((len(hosts), ordinal), [])
        for partition in alike:
            if not any(host in partition.group_of for host in hosts):
                break
        else:
            partition = Partition((len(hosts), ordinal, len(alike)))
            alike.append(partition)
        partition.add(hosts)
        return partition
