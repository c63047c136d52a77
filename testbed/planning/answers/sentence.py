"""The answer in a sentence or two: which design is best, by how much, and what would help it most."""

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


def sentence(answer: Answer) -> str:
    """Return what *answer* says first."""
    row = answer.fastest
    trains = row.point.kind != "collective"
    verb = "trains" if trains else "is"
    first = f"{answer.work} {verb} fastest with {answer.label(row)}: " if len(answer.rows) > 1 else ""
    if not first:
        first = f"{answer.work} on {row.point.label}, {row.point.ranks} ranks: "
    first += f"{seconds(seconds_of(row))}{' a step' if trains else ''}"
    if trains and row.efficiency is not None:
        first += f", {percent(row.efficiency)} of it computation"
    parts = [first, *_against_others(answer), *_cheapest(answer)]
    return "; ".join(parts) + "." + _help(answer, row)


def _against_others(answer: Answer) -> list[str]:
    best = answer.fastest
    others = [row for row in answer.rows if row is not best and row.point.ranks == best.point.ranks]
    if not others:
        return []
    next_best = min(others, key=pace)
    ratio = pace(next_best) / pace(best) if pace(best) else 1.0
    name = answer.label(next_best)
    if ratio < 1 + ALIKE:
        return [f"{name} is as fast"]
    return [f"that is {ratio:.2f} times as fast as {name}"]


def _cheapest(answer: Answer) -> list[str]:
    least, fastest = answer.cheapest, answer.fastest
    if least is fastest or expense(fastest) <= expense(least) * (1 + ALIKE):
        return []
    saved = 1 - expense(least) / expense(fastest)
    priced = least.point.price_per_gpu_hour is not None and fastest.point.price_per_gpu_hour is not None
    what = "costs" if priced else "takes"
    of = "" if priced else " GPU time"
    return [
        f"{answer.label(least)} {what} least{of}, {percent(saved)} less for the same work, in "
        f"{pace(least) / pace(fastest):.2f} times the time"
    ]


def _help(answer: Answer, row: Row) -> str:
    """Return what more of which resource saves most; where that is computation, of which other, too."""
    own = next((own for own in answer.explained if own.row is row), None)
    if own is None:
        return ""
    most = [gain for gain in own.gains if gain.part is not None and gain.part >= ALIKE]
    if not most:
        return ""
    shown = most[:2] if most[0].resource == COMPUTE else most[:1]
    return f" {'; '.join(map(_saves, shown))}."


def _saves(gain: Gain) -> str:
    what = {
        COMPUTE: "10 % faster computation",
        LATENCY: "10 % less latency",
        BUCKETS: "another bucket cap, by 10 %,",
    }.get(gain.resource, f"10 % more {gain.resource}")
    assert gain.part is not None
    return f"{what} would save {percent(gain.part)} of it"
