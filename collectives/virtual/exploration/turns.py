"""Turns of a run: who went on, and what it touched of what ranks share.

Two turns can be told apart by their order if they touch the same thing and `relation` says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from sim.cluster import Thing, Touch


@dataclass(frozen=True)
class View:
    """What has been done to a thing, as far as one can see: who changed it, in order, and who takes part."""

    changes: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """How many have taken part or changed it."""
        return len(self.changes) + len(self.parts)

    def after(self, rank: int, how: Touch) -> View:
        """Return what there is to see after *rank* has touched the thing."""
        if how is Touch.WRITE:
            return View((*self.changes, rank), self.parts)
        if how is Touch.CONTRIBUTE:
            return View(self.changes, tuple(sorted((*self.parts, rank))))
        return self


@dataclass(frozen=True)
class Touched:
    """One touch.

    Attributes:
        thing: that ranks share.
        how: it was touched.
        before: what had been done to it before.
        place: the line of the user's code, where that is known.
        is_late: it takes what was there when nothing else could go on.
    """

    thing: Thing
    how: Touch
    before: View
    place: str = ""
    is_late: bool = False

    @property
    def completes(self) -> bool:
        """Whether it makes a difference to who looks at the thing, if it takes part."""
        return self.before.count + 1 >= self.thing.contributions

    @property
    def seen(self) -> Hashable:
        """What the rank can know from it of the order of turns."""
        if self.how is Touch.WRITE:
            return self.before
        if self.how is not Touch.READ or self.is_late:
            return None
        return self.before if self.thing.contributions == 1 else self.before.count >= self.thing.contributions


@dataclass
class Turn:
    """One turn of a rank.

    Attributes:
        rank: whose it was.
        now_ps: its time.
        runnable: the ranks that could have gone on instead, and this one.
        node: the place of the choice among all of the run.
        touches: what it touched, in order.
        sources: what it chose of messages that came together.
    """

    rank: int
    now_ps: int
    runnable: tuple[int, ...]
    node: int
    touches: list[Touched] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)

    @property
    def only_looks(self) -> bool:
        """Whether it has done nothing but to look at things."""
        return bool(self.touches) and all(one.how is Touch.READ for one in self.touches)


def seen_by_ranks(turns: Iterable[Turn]) -> Hashable:
    """Return what the ranks of a run can know of the order of its turns: the same for runs of one class."""
    by_rank: defaultdict[int, list[Hashable]] = defaultdict(list)
    for turn in turns:
        by_rank[turn.rank] += [
            (touch.thing, touch.how, touch.seen) for touch in turn.touches if touch.how is not Touch.AWAIT
        ]
        by_rank[turn.rank] += turn.sources
    return tuple((rank, tuple(seen)) for rank, seen in sorted(by_rank.items()))


class Relation(Enum):
    """How a touch depends on an earlier one of another rank."""

    NONE = "they could be in the other order, and nobody would know"
    CAUSE = "the later could not be as it is without the earlier"
    RACE = "in the other order, somebody would see another thing"


def relation(earlier: Touched, later: Touched) -> Relation:
    """Return how *later* depends on *earlier*, a touch of the same thing by another rank in the same run."""
    kinds = {earlier.how, later.how}
    if _never_matter(kinds):
        return Relation.NONE
    if Touch.WRITE in kinds:
        return Relation.RACE
    if later.how is Touch.CONTRIBUTE:
        return Relation.RACE if later.completes else Relation.NONE
    if later.is_late:
        return Relation.CAUSE
    return Relation.RACE if later.before.count >= later.thing.contributions else Relation.NONE


def hinders(done: Iterable[Touched], put_off: Iterable[Touched]) -> bool:
    """Return whether turns that were put off may see another thing after *done* than before."""
    return any(one.thing == other.thing and _may_hinder(one, other) for other in put_off for one in done)


def _may_hinder(done: Touched, put_off: Touched) -> bool:
    kinds = {done.how, put_off.how}
    return not _never_matter(kinds) and (Touch.WRITE in kinds or done.completes)


def _never_matter(kinds: set[Touch]) -> bool:
    """Return whether nobody can know the order of two touches of these kinds."""
    return Touch.AWAIT in kinds or (len(kinds) == 1 and Touch.WRITE not in kinds)
