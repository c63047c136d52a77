"""Answer in a few sentences: which design is best, by how much, and what would help it most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.output.table import percent, seconds
from testbed.planning.answers.figures import expense, pace, seconds_of
from testbed.planning.answers.gains import BUCKETS, COMPUTE, LATENCY, Gain

if TYPE_CHECKING:
    from testbed.planning.answers.answer import Answer
    from testbed.planning.row import Row

ALIKE = 0.005
"""Designs whose figures differ by less than this part are said to be alike."""


def sentences(answer: Answer) -> list[str]:
    """Return what *answer* says first: what is fastest, what is cheapest, and what would help the fastest."""
    row = answer.fastest
    trains = row.point.kind != "collective"
    if len(answer.rows) > 1:
        said = f"{answer.work} {'trains' if trains else 'is'} fastest with {answer.label(row)}: "
    else:
        said = f"{answer.work} on {row.point.label}, {row.point.ranks} ranks: "
    said += f"{seconds(seconds_of(row))}{' a step' if trains else ''}"
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
    next_best = min(others, key=pace)
    ratio = pace(next_best) / pace(best) if pace(best) else 1.0
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
    if least is fastest or expense(fastest) <= expense(least) * (1 + ALIKE):
        return []
    saved = 1 - expense(least) / expense(fastest)
    priced = least.point.price_per_gpu_hour is not None and fastest.point.price_per_gpu_hour is not None
    what = "costs least" if priced else "takes least GPU time"
    return [
        f"{answer.label(least)} {what}: {percent(saved)} less for the same work, in "
        f"{pace(least) / pace(fastest):.2f} times the time."
    ]


def _help(answer: Answer, row: Row) -> list[str]:
    """Return what more of which resource saves most; where that is computation, of which other, too."""
    own = next((own for own in answer.explained if own.row is row), None)
    most = [gain for gain in own.gains if gain.part is not None and gain.part >= ALIKE] if own else []
    if not most:
        return []
    shown = most[:2] if most[0].resource == COMPUTE else most[:1]
    return [f"Of the fastest, {'; '.join(map(_saves, shown))} of its step."]


def _saves(gain: Gain) -> str:
    what = {
        COMPUTE: "10 % faster computation",
        LATENCY: "10 % less latency",
        BUCKETS: "another bucket cap, by 10 %,",
    }.get(gain.resource, f"10 % more {gain.resource}")
    assert gain.part is not None
    return f"{what} would save {percent(gain.part)}"
