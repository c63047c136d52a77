"""Plots of a plan: time against cost, what is lost to what, and how designs scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from testbed.output.figure import COLOURS, QUIET
from testbed.output.table import grouped
from testbed.planning.answers.answer import MAX_WORKS, Answer
from testbed.planning.answers.figures import HOUR, designs, expense, pace, seconds_of
from testbed.planning.row import Row
from testbed.plots.figure import Axis, Line, Lines, Panel, Shares, curves, numbered, over_sizes
from testbed.result import Plot

_DAY = 24 * HOUR


def designs_plots(answers: Sequence[Answer]) -> Iterator[Plot]:
    """Yield the plots of a few pieces of work; of many their times by size alone."""
    for answer in answers if len(answers) <= MAX_WORKS else ():
        yield from _of_work(answer)
    yield from _over_sizes(answers)


def _of_work(answer: Answer) -> Iterator[Plot]:
    if len(answer.rows) > 2:
        note = (
            "The line joins the front: no other design takes less time and costs no more, or the other way "
            "round. Thin lines: within these nine of ten measurements of a design are expected."
        )
        yield Plot(partial(_time_and_cost, answer), f"Time and cost of {answer.work}", note)
    if answer.rows[0].point.kind != "collective" and len({row.point.ranks for row in answer.rows}) > 1:
        note = "The step of one rank alone over that of so many."
        yield Plot(partial(_over_ranks, answer), f"Efficiency of {answer.work}", note)
    if any(own.lost.causes for own in answer.explained):
        note = "Each piece is what the removal of its cause saves, after those to its left."
        yield Plot(partial(_causes, answer), f"What {answer.work} loses to what", note)


def _time_and_cost(answer: Answer) -> Lines:
    """Return all designs by time and cost: of all tokens where that is known, else of the same work."""
    of = {id(row): own for row, own in zip(answer.rows, answer.targets, strict=True)}
    whole = all(own is not None for own in answer.targets)
    priced = all(row.point.price_per_gpu_hour is not None for row in answer.rows)
    least = min(map(pace, answer.rows)), min(map(expense, answer.rows))

    def time(row: Row) -> float:
        target = of[id(row)]
        return target.seconds / _DAY if target is not None and whole else pace(row) / least[0]

    def cost(row: Row) -> float:
        target = of[id(row)]
        if target is None or not whole:
            return expense(row) / least[1]
        return target.cost if priced and target.cost is not None else target.gpu_hours

    what = "cost" if priced else "GPU hours" if whole else "GPU time"
    best = {id(row) for row in answer.front}
    points = [
        Design(answer.label(row), time(row), cost(row), id(row) in best, _within(row)) for row in answer.rows
    ]
    relative = "" if whole else ", times the least"
    spent = f"{what}{relative}" + ("" if whole else " of the same work")
    if whole:
        x = Axis("time of the whole training (days)", spell="{:,.4g}".format)
        return front(points, x, Axis(spent, spell="{:,.0f}".format))
    x = Axis("time of the same work, times the least", spell="{:.4g}".format)
    return front(points, x, Axis(spent, spell="{:.4g}".format))


def _within(row: Row) -> tuple[float, float] | None:
    """Return the factors of a row's figures between which nine of ten measurements lie."""
    if row.interval is None:
        return None
    return row.interval.low / seconds_of(row), row.interval.high / seconds_of(row)


def _over_ranks(answer: Answer) -> Lines:
    """Return the efficiency of each design over its ranks."""
    lines = []
    for number, (name, own) in enumerate(designs(answer.rows).items()):
        known = {count: row.efficiency for count, row in sorted(own.items()) if row.efficiency is not None}
        lines.append(Line(name, [(count, 100 * part) for count, part in known.items()], **numbered(number)))
    ranks = [count for line in lines for count, _ in line.points]
    axis = Axis("ranks", log=True, spell="{:.0f}".format, at=ranks)
    return Lines(axis, [[Panel(Axis("efficiency (%)", spell="{:.3g}".format), lines)]])


def _causes(answer: Answer) -> Shares:
    explained = [own for own in answer.explained if own.lost.causes]
    names = dict.fromkeys(cause.name for own in explained for cause in own.lost.causes)
    of = [{cause.name: own.lost.share(cause) for cause in own.lost.causes} for own in explained]
    parts = {name: [100 * (own.get(name) or 0.0) for own in of] for name in names}
    axis = Axis("% of the step's time", spell="{:.1f} %".format)
    return Shares(axis, [answer.label(own.row) for own in explained], list(parts.items()))


def _over_sizes(answers: Sequence[Answer]) -> Iterator[Plot]:
    """Yield the times of collectives over their sizes, a plot for each of several sizes."""
    rows = [(answer, row) for answer in answers for row in answer.rows if row.point.kind == "collective"]
    for name, own in grouped(rows, lambda one: one[1].point.model).items():
        named = curves((answer.label(row), row.point.nbytes, seconds_of(row)) for answer, row in own)
        if max(map(len, named.values())) > 1:
            yield Plot(partial(over_sizes, named, ()), f"Time of {name} by size")


@dataclass(frozen=True)
class Design:
    """A design: its name, its two figures, both better where they are smaller, and whether none beats it.

    *within* are the factors between which both figures lie in nine of ten measurements.
    """

    name: str
    x: float
    y: float
    on_front: bool
    within: tuple[float, float] | None = None


MAX_NAMES = 12
"""Designs of the front up to which their names are written."""


def front(designs: Sequence[Design], x: Axis, y: Axis) -> Lines:
    """Return *designs* by their two figures, those of the front coloured and joined."""
    best = sorted((own for own in designs if own.on_front), key=lambda own: (own.x, own.y))
    rest = [own for own in designs if not own.on_front]
    named = grouped(designs, lambda own: (own.x, own.y))
    lines = []
    for name, chosen, colour, dash in (("others", rest, QUIET, None), ("front", best, COLOURS[0], 0)):
        points = list(dict.fromkeys((own.x, own.y) for own in chosen))
        names = [", ".join(own.name for own in named[point]) for point in points]
        written = chosen is best and len(points) <= MAX_NAMES
        lines.append(Line(name, points, colour, dash, names=names, written=written, size=5.5))
    sure = [
        Line("", [(own.x * factor, own.y * factor) for factor in own.within], QUIET, mark=None, width=0.8)
        for own in designs
        if own.within is not None
    ]
    every = [point for line in (*lines, *sure) for point in line.points]
    return Lines(
        _with_room(x, 0.15, [at for at, _ in every]),
        [[Panel(_with_room(y, 0.2, [value for _, value in every]), [*sure, *lines])]],
    )


def _with_room(axis: Axis, share: float, values: Sequence[float]) -> Axis:
    """Return *axis* with room for names at either end: so much of the range of *values*."""
    room = share * (max(values) - min(values)) or share * max(values) or 1.0
    return replace(axis, low=min(values) - room, high=max(values) + room)
