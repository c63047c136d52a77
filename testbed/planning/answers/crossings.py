"""Crossings: between which numbers of ranks one design overtakes another, and at which price.

Two designs differ in anything but the number of ranks.  Each is a curve over the counts that were asked for;
where the curves of two change places between two neighbouring counts, they cross there.  Nothing is said of
counts beyond, nor of two crossings between the same neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from testbed.planning.answers.figures import gpu_seconds, label, pace, varying

if TYPE_CHECKING:
    from testbed.planning.row import Row

MAX_DESIGNS = 40
"""Designs of which each is held against each other."""


@dataclass(frozen=True)
class Crossing:
    """Two designs that change places.

    Attributes:
        ahead: the one that is ahead up to *last* ranks.
        overtakes: the one that is ahead from *first* ranks on.
        last: ranks up to which the former is ahead.
        first: ranks from which on the latter is.
        figure: in which: ``time`` or ``cost``.
    """

    ahead: str
    overtakes: str
    last: int
    first: int
    figure: str


@dataclass(frozen=True)
class BreakEven:
    """What a design's GPU hour may cost, against another design.

    Attributes:
        design: whose.
        against: the other one.
        ranks: of both.
        ratio: it is cheaper as long as its GPU hour costs less than so many times that of the other.
        price: the same in money, where the other has a price; None where it has none.
    """

    design: str
    against: str
    ranks: int
    ratio: float
    price: float | None


def designs(rows: Sequence[Row]) -> dict[str, dict[int, Row]]:
    """Return the rows of each design by their number of ranks; the design's name tells it from others."""
    names = tuple(name for name in varying(rows) if name != "ranks")
    found: dict[str, dict[int, Row]] = {}
    for row in rows:
        found.setdefault(label(row, names), {})[row.point.ranks] = row
    return found


def crossings(rows: Sequence[Row], value: Callable[[Row], float], figure: str) -> list[Crossing]:
    """Return where designs overtake each other in *value*, of which less is better, by number of ranks.

    Args:
        rows: of one model.  Of more than `MAX_DESIGNS` designs only those are compared that are the best
            somewhere.
        value: of a row.
        figure: what that is.
    """
    curves = designs(rows)
    if len(curves) > MAX_DESIGNS:
        curves = {name: curves[name] for name in _best_somewhere(curves, value)}
    found = []
    for (one, mine), (other, yours) in combinations(curves.items(), 2):
        common = sorted(mine.keys() & yours.keys())
        ahead = [(count, _sign(value(mine[count]) - value(yours[count]))) for count in common]
        decided = [(count, sign) for count, sign in ahead if sign]
        for (last, before), (first, after) in pairwise(decided):
            if before != after:
                names = (one, other) if before < 0 else (other, one)
                found.append(Crossing(*names, last, first, figure))
    return sorted(found, key=lambda own: (own.last, own.first, own.ahead))


def break_evens(rows: Sequence[Row]) -> list[BreakEven]:
    """Return at which price each design costs as much as the fastest of as many ranks on another network."""
    curves = designs(rows)
    found = []
    for count in sorted({row.point.ranks for row in rows}):
        here = {name: own[count] for name, own in curves.items() if count in own}
        fastest = min(here, key=lambda name: pace(here[name]))
        for name, row in here.items():
            if row.point.label != here[fastest].point.label:
                ratio = gpu_seconds(here[fastest]) / gpu_seconds(row)
                price = here[fastest].point.price_per_gpu_hour
                found.append(BreakEven(name, fastest, count, ratio, None if price is None else price * ratio))
    return found


def _best_somewhere(curves: dict[str, dict[int, Row]], value: Callable[[Row], float]) -> list[str]:
    counts = {count for own in curves.values() for count in own}
    best = {
        min(
            (name for name, own in curves.items() if count in own),
            key=lambda name: value(curves[name][count]),
        )
        for count in counts
    }
    return [name for name in curves if name in best][:MAX_DESIGNS]


def _sign(difference: float) -> int:
    return (difference > 0) - (difference < 0)
