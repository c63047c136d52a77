"""Figures of a row by which designs are compared, names for people, and where designs cross.

Two designs are compared by what they take for the same work, not for a step: with weak scaling a step of 64
ranks does eight times the work of one of 8.  The unit of work is a token where the question says how many a
rank has in a step; else what one rank computes in a step, which layouts of a script are taken to share; of a
collective it is the collective.

Two designs differ in anything but the number of ranks.  Each is a curve over the counts that were asked for;
where the curves of two change places between two neighbouring counts, they cross there.  Nothing is said of
counts beyond, nor of two crossings between the same neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, TypeVar

from testbed.output.table import spell_size
from testbed.planning.row import Row

HOUR = 3600.0

INPUTS = ("label", "layout", "ranks", "scaling", "strategy", "bucket_cap_mb", "algorithm")
"""The inputs in which designs for one piece of work can differ; the label is that of the network."""

T = TypeVar("T")


def input_of(row: Row, name: str) -> str:
    """Return the input *name* of *row* as a table has it."""
    value: Any = getattr(row.point, name)
    if name == "layout":
        return ", ".join(f"{axis}={own}" for axis, own in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def varying(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the names of the inputs in which *rows* differ."""
    return tuple(name for name in INPUTS if len({input_of(row, name) for row in rows}) > 1)


def label(row: Row, names: Iterable[str]) -> str:
    """Return how *row* is called where rows differ in the inputs *names*: ``dgx-h100, 64 ranks``."""
    spelled = {
        "ranks": "{} ranks",
        "scaling": "{} scaling",
        "bucket_cap_mb": "{} MiB buckets",
        "algorithm": "algorithm {}",
    }
    parts = [spelled.get(name, "{}").format(input_of(row, name)) for name in names]
    return ", ".join(parts) or row.point.label


def work_of(row: Row) -> str:
    """Return what *row* is about: a model that is trained, or a collective and its size."""
    if row.point.kind == "collective":
        return f"{row.point.model} of {spell_size(row.point.nbytes)}"
    return Path(row.point.model).name


def seconds_of(row: Row) -> float:
    """Return the seconds of *row*, which has some."""
    assert row.seconds is not None, "rows without figures have been left out"
    return row.seconds


def pace(row: Row) -> float:
    """Return the seconds that *row* takes for a unit of work."""
    seconds, point = seconds_of(row), row.point
    if point.tokens_per_step:
        return seconds / point.tokens_per_step
    return seconds if point.kind == "collective" else seconds / (point.fewest or point.ranks)


def gpu_seconds(row: Row) -> float:
    """Return the seconds of all ranks together that *row* takes for a unit of work."""
    return pace(row) * row.point.ranks


def expense(row: Row) -> float:
    """Return what a unit of work costs, in money where *row* has a price, else in seconds of ranks."""
    price = row.point.price_per_gpu_hour
    return gpu_seconds(row) * (1.0 if price is None else price / HOUR)


def front(items: Iterable[T], objectives: Sequence[Callable[[T], float]]) -> list[T]:
    """Return those of *items* than which no other is at least as good in all *objectives* and better in one.

    Args:
        items: in any order; equals stay together, in their order.
        objectives: each is better where it is smaller.

    Returns:
        The front, ascending in the first objective, of equals there in the second, and so on.
    """
    scored = sorted(
        ((tuple(own(item) for own in objectives), item) for item in items), key=lambda pair: pair[0]
    )
    kept: list[tuple[tuple[float, ...], T]] = []
    for score, item in scored:  # only what comes before can beat it
        if not any(_beats(other, score) for other, _ in kept):
            kept.append((score, item))
    return [item for _, item in kept]


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(mine <= yours for mine, yours in zip(one, other, strict=True))


@dataclass(frozen=True)
class Target:
    """What it takes to train on so many tokens.

    Attributes:
        tokens: how many.
        seconds: that it takes.
        gpu_hours: of all ranks together.
        cost: in the currency of the prices; None where there is no price.
    """

    tokens: float
    seconds: float
    gpu_hours: float
    cost: float | None


def to_target(row: Row, tokens: float) -> Target | None:
    """Return what *row* takes for *tokens*; None where it is not known how many tokens a step has.

    Assumed: every step takes what it takes in the steady state; nothing fails and nothing is saved.
    """
    if not row.tokens_per_second:
        return None
    seconds = tokens / row.tokens_per_second
    gpu_hours = seconds * row.point.ranks / HOUR
    price = row.point.price_per_gpu_hour
    return Target(tokens, seconds, gpu_hours, None if price is None else gpu_hours * price)


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
