"""Folding of a run: which ranks are taken to do the same, in one attempt after another.

All ranks start as one class, but for those that a condition names, such as a straggler: each of these is by
itself.  An attempt that finds members to differ (`collectives.virtual.folding.verification`) ends, and the
next one begins with their class split: by what tells them apart, where that is known, such as their number
in groups in which messages are sent, or by unequal parts of what is divided over them.  Else by what those do
that were compared: one that differs from all others, which do the same, is taken out, as the first or last
rank of many scripts; others are told apart by what scripts ask of a rank, such as whether it is even
(`collectives.virtual.folding.probes`).  If nothing of that holds, the class is cut between neighbours that
differ, or halved.  A rank that was taken out and turns out to do as a class does joins that again.  A class
of a run of at most 64 ranks that is to be cut or halved is given up instead.

Programs are taken to be deterministic: a rank does in every attempt what it did in the first.  Whoever runs
one time and again, as plans do, gives the classes that a run has found to the next (`Folding.found`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from itertools import pairwise

from collectives.errors import NotSupportedError
from collectives.execution.blame import ranks_by
from collectives.virtual.folding.classes import Classes, MembersDiffer, RankClass
from collectives.virtual.folding.probes import Alike, cuts_of, key_of, probes_of
from collectives.virtual.folding.signature import Signature, alike_in
from collectives.virtual.folding.verification import FEW_RANKS

MAX_ATTEMPTS = 40
"""How often a run begins anew before it is refused."""


class Folding:
    """Classes of the ranks of one run, over its attempts.

    Args:
        num_ranks: of the run.
        alone: ranks that are by themselves.
        ranks_per_node: of the topology.
        compares: whether members are compared; else groups and parts of what is divided tell them apart.

    Attributes:
        known: signatures of ranks from the attempts so far.
        reasons: why the run began anew, each time.
    """

    def __init__(
        self, num_ranks: int, alone: Collection[int] = (), ranks_per_node: int = 1, compares: bool = True
    ) -> None:
        self._num_ranks = num_ranks
        self._ranks_per_node = ranks_per_node
        self._compares = compares
        self._classes = [tuple(rank for rank in range(num_ranks) if rank not in alone)]
        self._splits: dict[tuple[int, ...], int] = {}
        self._keys: list[Callable[[int], Hashable]] = []
        self.known: dict[int, Signature] = {}
        self.reasons: list[str] = []

    @property
    def found(self) -> Folding:
        """A folding that begins with the classes that were found, and compares nothing any more."""
        again = Folding(self._num_ranks, (), self._ranks_per_node, compares=False)
        again._classes, again._splits, again._keys = [*self._classes], {**self._splits}, [*self._keys]
        return again

    def classes(self) -> Classes:
        """Return the classes for the next attempt."""
        while (unequal := next(self._unequal(), None)) is not None:
            ranks, alike = unequal
            self._replace(ranks, self._parts(ranks, alike))
        self._join_equal()
        folded = sorted(ranks for ranks in self._classes if len(ranks) > 1)
        return Classes(
            [self._class(ranks, sum(map(len, folded))) for ranks in folded],
            self._ranks_per_node,
        )

    def _class(self, ranks: tuple[int, ...], num_folded: int) -> RankClass:
        probes = probes_of(ranks, self._ranks_per_node, num_folded) if self._compares else ()
        wanted = [rank for rank in probes if rank not in self.known]
        return RankClass(ranks, wanted, [rank for rank in ranks if rank in self.known])

    def split(self, differ: MembersDiffer, classes: Classes) -> None:
        """Split the class of which members differ, for the next attempt.

        Raises:
            NotSupportedError: too many attempts have been made.
        """
        self.reasons.append(str(differ))
        if len(self.reasons) >= MAX_ATTEMPTS:
            raise NotSupportedError(
                f"folding: after {MAX_ATTEMPTS} attempts ranks still do not do the same ({differ}); "
                "run without folding (fold=False, --fold off)"
            )
        key = differ.key or self._key_of_parts(differ.ranks, classes)
        if key is None:
            self._replace(differ.ranks, self._parts(differ.ranks, differ.alike))
            return
        self._keys.append(key)
        for ranks in tuple(self._classes):
            self._replace(ranks, _by(key, ranks), times=0)

    def _key_of_parts(self, ranks: Sequence[int], classes: Classes) -> Callable[[int], Hashable] | None:
        """Return unequal parts as what tells ranks apart, if some of them have such."""
        return classes.part_of if len({classes.part_of(rank) for rank in ranks}) > 1 else None

    def _join_equal(self) -> None:
        """Take a rank that was taken out back into a class that does as it does after all."""
        for alone in [ranks for ranks in self._classes if len(ranks) == 1 and ranks[0] in self.known]:
            rank = alone[0]
            for ranks in [ranks for ranks in self._classes if len(ranks) > 1]:
                first = ranks[0]
                if self.known.get(first) == self.known[rank] and self._keys_of(first) == self._keys_of(rank):
                    self._classes.remove(alone)
                    self._classes.remove(ranks)
                    joined = tuple(sorted((rank, *ranks)))
                    self._classes.append(joined)
                    self._splits[joined] = self._splits.get(ranks, 0)
                    break

    def _keys_of(self, rank: int) -> list[Hashable]:
        """Return all that is known to tell *rank* from others."""
        return [key(rank) for key in self._keys]

    def _unequal(self) -> Iterator[tuple[tuple[int, ...], Alike]]:
        """Yield classes of which members are known to differ, and those that are known, by what they do."""
        for ranks in self._classes:
            known = {rank: self.known[rank] for rank in ranks if rank in self.known}
            alike = alike_in(known, operator.eq)
            if len(alike) > 1:
                yield ranks, alike

    def _parts(self, ranks: tuple[int, ...], alike: Alike) -> list[tuple[int, ...]]:
        """Return the parts of a class, of some of which it is known what they do."""
        times = self._splits.get(ranks, 0)
        several = tuple(own for own in alike if len(own) > 1)
        single = {own[0] for own in alike if len(own) == 1}
        if times < 2 and len(several) < 2:
            return _without(ranks, single if several else {ranks[-1 if times else 0]})
        for compared, alone in ((alike, set()), (several, single)):
            key = key_of(compared, self._num_ranks, self._ranks_per_node)
            if key is not None:
                *singles, rest = _without(ranks, alone)
                return [*singles, *_by(key, rest)]
        if self._num_ranks <= FEW_RANKS:
            return [(rank,) for rank in ranks]
        places = (0, *(cuts_of(ranks, alike) or (len(ranks) // 2,)), len(ranks))
        return [ranks[place:end] for place, end in pairwise(places)]

    def _replace(
        self, ranks: tuple[int, ...], parts: Sequence[tuple[int, ...]], times: int | None = None
    ) -> None:
        """Put parts in the place of a class, from each of which a rank was taken out so many times."""
        if times is None:
            times = self._splits.get(ranks, 0) + 1
        if len(parts) > 1:
            self._classes.remove(ranks)
            self._classes += parts
            self._splits.update((part, times) for part in parts)


def _without(ranks: Sequence[int], alone: Collection[int]) -> list[tuple[int, ...]]:
    """Return each of *alone* by itself, and the others of *ranks* together at the end."""
    return [*((rank,) for rank in sorted(alone)), tuple(rank for rank in ranks if rank not in alone)]


def _by(key: Callable[[int], Hashable], ranks: Sequence[int]) -> list[tuple[int, ...]]:
    """Return *ranks* by what tells them apart."""
    return [tuple(part) for part in ranks_by({rank: key(rank) for rank in ranks}).values()]
