"""The answer to a plan: of each piece of work what is best, what it loses, and what would help."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from testbed.output.table import grouped, percent, seconds
from testbed.planning.answers import causes, figures
from testbed.planning.points import Point
from testbed.planning.row import Row

MAX_EXPLAINED = 8
"""Rows of a piece of work whose lost time and gains are looked into: all of so few, else of the front."""
MAX_SCRIPTS = 2
"""The same of scripts."""
MAX_WORKS = 12
"""Pieces of work beyond which none is looked into."""

Groups = Callable[["Point"], Sequence[str]]
"""Names the groups of links of a point's network."""

ALIKE = 0.005
"""Designs whose figures differ by less than this part are said to be alike."""


@dataclass(frozen=True)
class Explained:
    """A row, what it loses to what, and what more of each resource would buy."""

    row: Row
    lost: causes.LostTime
    gains: tuple[causes.Gain, ...]


@dataclass(frozen=True)
class Answer:
    """What a plan says of one piece of work: a model to be trained, or a collective of one size.

    Attributes:
        work: what it is.
        rows: that were predicted of it, in the order of the question.
        front: those that no other one beats in time and in cost for the same work, fastest first.
        crossings: where designs overtake each other.
        break_evens: at which price designs cost the same.
        explained: the rows that were looked into.
        targets: what each row of *rows* takes for the tokens asked for; None where that is not known.
    """

    work: str
    rows: tuple[Row, ...]
    front: tuple[Row, ...]
    crossings: tuple[figures.Crossing, ...]
    break_evens: tuple[figures.BreakEven, ...]
    explained: tuple[Explained, ...]
    targets: tuple[figures.Target | None, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Inputs in which the rows differ."""
        return figures.varying(self.rows)

    @property
    def fastest(self) -> Row:
        """The row that is through with the same work first."""
        return min(self.rows, key=figures.pace)

    @property
    def cheapest(self) -> Row:
        """The row that costs least for the same work; without prices, that takes least time of ranks."""
        return min(self.rows, key=figures.expense)

    def label(self, row: Row) -> str:
        """Return how *row* is called among the others."""
        return figures.label(row, self.names)

    def as_json(self) -> dict[str, Any]:
        """Return all but the rows as JSON types; rows are named by their numbers in *rows*."""
        number = {id(row): place for place, row in enumerate(self.rows)}
        return {
            "work": self.work,
            "labels": [self.label(row) for row in self.rows],
            "front": [number[id(row)] for row in self.front],
            "fastest": number[id(self.fastest)],
            "cheapest": number[id(self.cheapest)],
            "crossings": [asdict(own) for own in self.crossings],
            "break_evens": [asdict(own) for own in self.break_evens],
            "explained": [
                {
                    "row": number[id(own.row)],
                    "lost_seconds": own.lost.lost_seconds,
                    "causes": [asdict(cause) for cause in own.lost.causes],
                    "gains": [asdict(gain) for gain in own.gains],
                }
                for own in self.explained
            ],
            "targets": [None if own is None else asdict(own) for own in self.targets],
        }


def works(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows of each piece of work that have figures, in their order."""
    return grouped((row for row in rows if row.seconds is not None), figures.work_of)


def to_explain(rows: Iterable[Row], *, scripts: bool = False) -> list[Row]:
    """Return which *rows* are looked into: of each piece of work a few; none where there are many works.

    Args:
        rows: of a plan.
        scripts: whether scripts are, too, each of which is run anew for every cause and resource.
    """
    by_work = works(rows)
    chosen: list[Row] = []
    if len(by_work) <= MAX_WORKS:
        for own in by_work.values():
            if own[0].point.kind != "script":
                chosen += _few(own, MAX_EXPLAINED)
            elif scripts:
                chosen += _few(own, MAX_SCRIPTS)
    return chosen


def _few(rows: Sequence[Row], most: int) -> list[Row]:
    """Return *rows* of one piece of work, or of more than *most* so many of the front, from end to end."""
    if len(rows) <= most:
        return list(rows)
    best = figures.front(rows, (figures.pace, figures.expense))
    if len(best) <= most:
        return best
    step = (len(best) - 1) / (most - 1)
    return [best[round(place * step)] for place in range(most)]


def more_cases(rows: Iterable[Row], groups: Groups, *, scripts: bool = False) -> list[causes.Case]:
    """Return what has to be predicted besides *rows* before they can be answered with, each case once."""
    wanted: dict[causes.Case, None] = {}
    for row in to_explain(rows, scripts=scripts):
        wanted |= dict.fromkeys(_cases_of(row, groups))
    return list(wanted)


def _cases_of(row: Row, groups: Groups) -> list[causes.Case]:
    """Return what is predicted to look into *row*."""
    return [*causes.cases(row), *(case for _, case in causes.gain_cases(row, groups(row.point)))]


def answers(
    rows: Sequence[Row], found: causes.Found, groups: Groups, tokens: float | None = None
) -> list[Answer]:
    """Return what *rows* say of each piece of work.

    Args:
        rows: of a plan.
        found: what `more_cases` take, or some of them: rows of which all is known are looked into.
        groups: of links.
        tokens: for which time and cost are wanted.
    """
    return [_answer(work, own, found, groups, tokens) for work, own in works(rows).items()]


def _answer(
    work: str, rows: Sequence[Row], found: causes.Found, groups: Groups, tokens: float | None
) -> Answer:
    looked_into = [
        row for row in to_explain(rows, scripts=True) if all(case in found for case in _cases_of(row, groups))
    ]
    return Answer(
        work=work,
        rows=tuple(rows),
        front=tuple(figures.front(rows, (figures.pace, figures.expense))),
        crossings=(
            *figures.crossings(rows, figures.pace, "time"),
            *figures.crossings(rows, figures.expense, "cost"),
        ),
        break_evens=tuple(figures.break_evens(rows)),
        explained=tuple(
            Explained(row, causes.lost_time(row, found), tuple(causes.gains(row, groups(row.point), found)))
            for row in looked_into
        ),
        targets=tuple(None if tokens is None else figures.to_target(row, tokens) for row in rows),
    )


def sentences(answer: Answer) -> list[str]:
    """Return what *answer* says first: what is fastest, what is cheapest, and what would help the fastest."""
    row = answer.fastest
    trains = row.point.kind != "collective"
    if len(answer.rows) > 1:
        said = f"{answer.work} {'trains' if trains else 'is'} fastest with {answer.label(row)}: "
    else:
        said = f"{answer.work} on {row.point.label}, {row.point.ranks} ranks: "
    said += f"{seconds(figures.seconds_of(row))}{' a step' if trains else ''}"
    if row.interval is not None:
        said += f" ({row.interval} in nine of ten measurements)"
    if trains and row.efficiency is not None:
        said += f", {percent(row.efficiency)} of it computation"
    return [said + _against_others(answer) + ".", *_cheapest(answer), *_help(answer, row)]


def _against_others(answer: Answer) -> str:
    best = answer.fastest
    others = [row for row in answer.rows if row is not best and row.point.ranks == best.point.ranks]
    if not others:
        return ""
    next_best = min(others, key=figures.pace)
    ratio = figures.pace(next_best) / figures.pace(best) if figures.pace(best) else 1.0
    name = answer.label(next_best)
    if ratio < 1 + ALIKE:
        return f"; {name} is as fast"
    unsure = "" if told_apart(best, next_best) else ", though measurements may not tell them apart"
    return f", {ratio:.2f} times as fast as {name}{unsure}"


def told_apart(one: Row, other: Row) -> bool:
    """Return whether nine of ten measurements of two designs on as many ranks of two networks lie apart.

    Designs on one network are wrong for the same reasons, and compared by their predictions alone.
    """
    if one.point.network == other.point.network or one.interval is None or other.interval is None:
        return True
    return one.interval.high < other.interval.low or other.interval.high < one.interval.low


def _cheapest(answer: Answer) -> list[str]:
    least, fastest = answer.cheapest, answer.fastest
    if least is fastest or figures.expense(fastest) <= figures.expense(least) * (1 + ALIKE):
        return []
    saved = 1 - figures.expense(least) / figures.expense(fastest)
    priced = least.point.price_per_gpu_hour is not None and fastest.point.price_per_gpu_hour is not None
    what = "costs least" if priced else "takes least GPU time"
    return [
        f"{answer.label(least)} {what}: {percent(saved)} less for the same work, in "
        f"{figures.pace(least) / figures.pace(fastest):.2f} times the time."
    ]


def _help(answer: Answer, row: Row) -> list[str]:
    """Return what more of which resource saves most; where that is computation, of which other, too."""
    own = next((own for own in answer.explained if own.row is row), None)
    most = [gain for gain in own.gains if gain.part is not None and gain.part >= ALIKE] if own else []
    if not most:
        return []
    shown = most[:2] if most[0].resource == causes.COMPUTE else most[:1]
    return [f"Of the fastest, {'; '.join(map(_saves, shown))} of its step."]


def _saves(gain: causes.Gain) -> str:
    what = {
        causes.COMPUTE: "10 % faster computation",
        causes.LATENCY: "10 % less latency",
        causes.BUCKETS: "another bucket cap, by 10 %,",
    }.get(gain.resource, f"10 % more {gain.resource}")
    assert gain.part is not None
    return f"{what} would save {percent(gain.part)}"
