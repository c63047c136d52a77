"""Classes of ranks that do the same: one thread says what all ranks of a class do.

Until it is known that a class is one, several of its ranks have a thread: the first, and *probes*
(`collectives.virtual.folding.probes`); the first speaks for all others.  Then the threads of the probes end,
and the first speaks for them, too.

What the first calls in a group means, for each of the others, the group made together with it that holds
that rank.  Where there is none, or where a message is sent and the others have other numbers within their
groups, so that other peers are meant, the ranks do not do the same: `MembersDiffer`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Protocol

from collectives.execution.blame import spell_ranks
from collectives.virtual.folding.partitions import Hosts, Partition, Partitions
from collectives.virtual.folding.probes import Alike, Key
from sim.cluster import RankThread


class MembersDiffer(BaseException):
    """Ranks of one class do not do the same; a run begins anew with classes that are smaller.

    Not an `Exception`, so that a script's ``except Exception`` does not swallow it.

    Args:
        why: in words.
        key: what tells ranks apart that cannot be in one class; None: it is only known that some of *ranks*
            do not do the same.
        ranks: of the class.
        alike: those of them that were compared, by what they do.
    """

    def __init__(
        self, why: str, key: Key | None = None, ranks: Sequence[int] = (), alike: Alike = ()
    ) -> None:
        super().__init__(why)
        self.ranks = tuple(ranks)
        self.key = key
        self.alike = alike


class Division(Protocol):
    """How something is divided over the members of groups; such divisions are equal if they say the same."""

    @property
    def parts(self) -> int:
        """How many members a group has."""

    @property
    def is_even(self) -> bool:
        """Whether all parts are alike."""

    def part(self, number: int) -> Hashable:
        """Return what tells the part of a member from those of others, by its number in its group."""


class RankClass:
    """Ranks that are taken to do the same.

    Attributes:
        ranks: in order.
        first: the one that speaks for the others.
        probes: those that have a thread beside it now.
        compared: the first, and all that are compared with it.
        num_compared: items that these have issued alike; None until they are compared.
    """

    def __init__(
        self, ranks: Sequence[int], probes: Sequence[int] = (), compared: Sequence[int] = ()
    ) -> None:
        self.ranks = tuple(ranks)
        self.first = self.ranks[0]
        self.probes = frozenset(probes)
        self.compared = (self.first, *sorted({*probes, *compared} - {self.first}))
        self.num_compared: int | None = None
        self._spoken_for = self._without_probes()

    def members(self, rank: int) -> tuple[int, ...]:
        """Return the ranks for which the thread of *rank* speaks, its own first."""
        return (rank,) if rank in self.probes else self._spoken_for

    def merge(self, probes: Collection[int]) -> None:
        """Let the first speak for *probes*, too."""
        self.probes -= frozenset(probes)
        self._spoken_for = self._without_probes()

    def _without_probes(self) -> tuple[int, ...]:
        return tuple(rank for rank in self.ranks if rank not in self.probes)

    def __str__(self) -> str:
        return f"{spell_ranks(self.ranks)} as rank {self.first}"


class Classes:
    """Classes of the ranks of one run; ranks in none are by themselves.

    Attributes:
        folded: the classes.
        partitions: which process groups were made together.
        before_call: called with a rank thread and the elements of the call that it is about to make.
        on_merge: called when threads of probes have ended and another one speaks for their ranks.
        divisions: into parts that are not all alike.
        has_splits: there was an all-to-all of parts, by which ranks are compared in every iteration.
    """

    def __init__(self, folded: Sequence[RankClass] = (), ranks_per_node: int = 1) -> None:
        self.folded = tuple(folded)
        self._ranks_per_node = ranks_per_node
        self._places: dict[tuple[int, ...], int] = {}  # a number of each way to lie on nodes, counted from 0
        self._place_of: dict[int, int] = {}  # by the id of a group, which its partition keeps
        self.partitions = Partitions()
        self._of = {rank: own for own in self.folded for rank in own.ranks}
        self.before_call: list[Callable[[RankThread, int], None]] = []
        self.on_merge: list[Callable[[], None]] = []
        self.divisions: dict[tuple[Division, Partition | None], None] = {}
        self.has_splits = False
        self._checked: set[Hashable] = set()
        self._divisions_checked: dict[int, int] = {}  # how many, by the first of a class

    def of(self, rank: int) -> RankClass | None:
        """Return the class of *rank*; None if it is by itself."""
        return self._of.get(rank)

    def threads(self, num_ranks: int) -> Iterator[int]:
        """Yield the ranks that have a thread now, in order."""
        for rank in range(num_ranks):
            own = self._of.get(rank)
            if own is None or rank == own.first or rank in own.probes:
                yield rank

    def representative(self, rank: int) -> int:
        """Return the rank whose thread speaks for *rank*, now."""
        own = self._of.get(rank)
        return rank if own is None or rank in own.probes else own.first

    def members(self, rank: int) -> tuple[int, ...]:
        """Return the ranks for which the thread of *rank* speaks now, its own first."""
        own = self._of.get(rank)
        return (rank,) if own is None else own.members(rank)

    def merge(self, own: RankClass, probes: Collection[int]) -> None:
        """Let the first of a class speak for *probes*, too."""
        own.merge(probes)
        for listener in self.on_merge:
            listener()

    def run(self, num_ranks: int) -> tuple[int, ...]:
        """Return the ranks that were run: those in no class, the first of each, and its probes."""
        compared = {rank for own in self.folded for rank in own.compared}
        return tuple(rank for rank in range(num_ranks) if rank not in self._of or rank in compared)

    def words(self) -> tuple[str, ...]:
        """Return in words which ranks are folded."""
        return tuple(map(str, self.folded))

    def note_division(self, division: Division, partition: Partition | None = None) -> None:
        """Note that something is divided over the members of a group, so that they may have unequal parts.

        Args:
            division: how.
            partition: to which the group belongs; None: any of groups of as many members.
        """
        if (division, partition) not in self.divisions and not division.is_even:
            self.divisions[division, partition] = None

    def part_of(self, rank: int, after: int = 0) -> tuple[Hashable, ...]:
        """Return the parts that *rank* has of all that was divided unequally, to tell ranks apart."""
        return tuple(
            division.part(partition.number_of[rank])
            for division, known in islice(self.divisions, after, None)
            for partition in (self.partitions.of_size(division.parts) if known is None else (known,))
            if rank in partition.number_of
        )

    def uncompared(self, rank: int, num_issued: int) -> RankClass | None:
        """Return the class for which *rank* speaks, if it has issued more than was compared; else None."""
        own = self._of.get(rank)
        if own is None or own.num_compared is None or num_issued < own.num_compared:
            return None
        return own if len(own.members(rank)) > 1 else None

    def check_parts(self, rank: int) -> None:
        """Check that all ranks that do as *rank* have equal parts of all that was divided unequally by now.

        Raises:
            MembersDiffer: they do not.
        """
        own, num_divisions = self._of.get(rank), len(self.divisions)
        checked = 0 if own is None else self._divisions_checked.get(own.first, 0)
        if own is None or checked == num_divisions:
            return
        self._divisions_checked[own.first] = num_divisions
        if len({self.part_of(member, checked) for member in own.ranks}) > 1:
            divided = ", ".join(dict.fromkeys(str(division) for division, _ in self.divisions))
            raise MembersDiffer(f"{spell_ranks(own.ranks)}: unequal parts of {divided}", self.part_of)

    def check_group(self, hosts: Hosts, ordinal: int, rank: int) -> None:
        """Check that every rank that does as *rank* is in a group made together with that of *hosts*.

        These groups must lie alike on nodes, too, as algorithms are chosen by that.

        Raises:
            MembersDiffer: one is in none, or in one that lies otherwise.
        """
        self._check(hosts, ordinal, rank, "calls", self._place)

    def check_message(self, hosts: Hosts, ordinal: int, rank: int) -> None:
        """Check that every rank that does as *rank* has the same number within its group of messages.

        Raises:
            MembersDiffer: one has another number, so that it sends to another peer.
        """
        self._check(hosts, ordinal, rank, "messages", lambda partition, own: partition.number_of.get(own))

    def is_alone(self, hosts: Hosts, ordinal: int) -> bool:
        """Return whether no group was made together with that of *hosts*."""
        return len(self.partitions.of(hosts, ordinal).groups) == 1

    def check_root(self, hosts: Hosts, ordinal: int, root: int) -> None:
        """Check that the root of a collective speaks for itself, where its group has no siblings.

        A script that names one rank of all has it do something that others do not.  Nor is it a probe, for
        which another rank will speak.

        Raises:
            MembersDiffer: it does not.
        """
        named = hosts[root]
        own = self._of.get(named)
        if own is not None and own.first != named and self.is_alone(hosts, ordinal):
            raise MembersDiffer(f"rank {named} is the root of a collective", lambda other: other == named)

    def check_roots(self, hosts: Hosts, ordinal: int, rank: int, root: int) -> None:
        """Check that all ranks that do as *rank* are roots of their groups, or none, as *rank* is.

        Raises:
            MembersDiffer: some are and others are not.
        """
        what = f"rank {root} is the root"
        self._check(hosts, ordinal, rank, what, lambda partition, own: partition.number_of.get(own) == root)

    def _check(
        self,
        hosts: Hosts,
        ordinal: int,
        rank: int,
        what: str,
        key: Callable[[Partition, int], Hashable],
    ) -> None:
        own = self._of.get(rank)
        if own is None or (own.first, hosts, ordinal, what) in self._checked:
            return
        partition = self.partitions.of(hosts, ordinal)
        wanted = key(partition, rank)
        if any(key(partition, other) != wanted for other in own.ranks):
            raise MembersDiffer(
                f"{spell_ranks(own.ranks)}: {what} in the group of {spell_ranks(hosts)}",
                partial(key, partition),
            )
        self._checked.add((own.first, hosts, ordinal, what))

    def _place(self, partition: Partition, rank: int) -> int | None:
        """Return a number that groups share whose members lie alike on nodes; None for no group."""
        own = partition.group_of.get(rank)
        if own is None:
            return None
        if id(own) not in self._place_of:
            nodes: dict[int, int] = {}
            places = tuple(nodes.setdefault(host // self._ranks_per_node, len(nodes)) for host in own)
            self._place_of[id(own)] = self._places.setdefault(places, len(self._places))
        return self._place_of[id(own)]
