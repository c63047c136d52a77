"""Races of a run: turns that could have been in the other order, and then somebody would see another thing.

A turn comes after another if it is of the same rank, if the other let it go on, or if both touch a thing of
which it sees what the other did; and after whatever that comes after (Lamport's happened-before).  What is at
different times is in order anyway.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectives.virtual.exploration.turns import Relation, Touched, Turn, relation
from sim.cluster import Thing


@dataclass(frozen=True)
class Race:
    """Two turns, the later of which could have come first.

    Attributes:
        node: the choice that gave the earlier turn.
        first: ranks one of which must have that turn instead, so that the later one comes first.
    """

    node: int
    first: frozenset[int]


def races(turns: Sequence[Turn], patience: int) -> Iterator[Race]:
    """Yield the races of a run that nothing else puts in order.

    A turn that only looks is not put before another if its rank would then have seen the same, in the same
    line, *patience* times in a row before.
    """
    causes = _Causes(turns)
    for later in range(len(turns)):
        for earlier in causes.races_of(later, patience):
            yield Race(turns[earlier].node, causes.beginners(earlier, later))


class _Causes:
    """What comes before what in one run; sets of turns are the bits of ints."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.before: list[int] = []
        self._turns = turns
        self._instant = _instants(turns)
        self._forced: list[int] = []
        self._direct: list[dict[int, Relation]] = []
        last_of: dict[int, int] = {}
        touched: dict[Thing, list[tuple[int, Touched]]] = defaultdict(list)
        came_on: dict[int, int] = {}

        for number, turn in enumerate(turns):
            for rank in turn.runnable:
                if rank not in came_on:
                    came_on[rank] = number - 1  # the turn before it let this rank go on
            forced = self._all_of(last_of.get(turn.rank)) | self._all_of(came_on.pop(turn.rank))
            direct: dict[int, Relation] = {}
            for touch in turn.touches:
                for other, earlier in touched[touch.thing]:
                    if turns[other].rank != turn.rank and self._instant[other] == self._instant[number]:
                        kind = relation(earlier, touch)
                        if kind is not Relation.NONE and direct.get(other) is not Relation.RACE:
                            direct[other] = kind
            for touch in turn.touches:
                touched[touch.thing].append((number, touch))
            before = forced
            for other in direct:
                before |= self._all_of(other)
            self._forced.append(forced)
            self._direct.append(direct)
            self.before.append(before)
            last_of[turn.rank] = number

    def _all_of(self, number: int | None) -> int:
        """Return a turn and all that come before it."""
        return 0 if number is None or number < 0 else self.before[number] | 1 << number

    def races_of(self, later: int, patience: int) -> Iterator[int]:
        """Yield the turns with which *later* races, that is with nothing in between."""
        direct = self._direct[later]
        for earlier, kind in direct.items():
            if kind is not Relation.RACE or self._forced[later] >> earlier & 1:
                continue
            if any(self.before[other] >> earlier & 1 for other in direct if other != earlier):
                continue
            if self._looks_in_vain(earlier, later) < patience:
                yield earlier

    def _looks_in_vain(self, earlier: int, later: int) -> int:
        """Return how often the rank of *later* has just seen what it would see again before *earlier*."""
        turn = self._turns[later]
        if not turn.only_looks:
            return 0
        changed = {touch.thing: touch.before for touch in self._turns[earlier].touches}
        wanted = {(one.thing, one.place, changed.get(one.thing, one.before)) for one in turn.touches}
        times = 0
        for own in reversed(self._turns[:later]):
            if own.rank == turn.rank:
                if not own.only_looks or wanted != {
                    (one.thing, one.place, one.before) for one in own.touches
                }:
                    break
                times += 1
        return times

    def beginners(self, earlier: int, later: int) -> frozenset[int]:
        """Return the ranks that can begin what leads to *later* without *earlier*."""
        apart = [
            number
            for number in range(earlier + 1, later)
            if not self.before[number] >> earlier & 1 and self._instant[number] == self._instant[later]
        ]
        among = sum(1 << number for number in apart)
        begun: set[int] = set()
        first = set()
        for number in [*apart, later]:
            rank = self._turns[number].rank
            needed = self.before[number] if number != later else self.before[later] & ~(1 << earlier)
            if rank not in begun and not needed & among:
                first.add(rank)
            begun.add(rank)
        return frozenset(first)


def _instants(turns: Sequence[Turn]) -> list[int]:
    """Return the number of the instant of each turn."""
    numbers: list[int] = []
    for number, turn in enumerate(turns):
        is_new = number > 0 and turn.now_ps != turns[number - 1].now_ps
        numbers.append((numbers[-1] if numbers else 0) + is_new)
    return numbers
