"""Plots of a plan: time against cost, what is lost to what, and how designs scale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from testbed.output.table import seconds, spell_size
from testbed.planning.answers.answer import MAX_WORKS
from testbed.planning.answers.crossings import designs
from testbed.planning.answers.figures import HOUR, expense, pace, seconds_of
from testbed.plots.interactive.designs import Design, front_plot
from testbed.plots.interactive.lines import lines
from testbed.plots.interactive.shares import shares
from testbed.result import Plot

if TYPE_CHECKING:
    from testbed.planning.answers.answer import Answer
    from testbed.planning.row import Row

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
            "round."
        )
        yield Plot(partial(_time_and_cost, answer), f"Time and cost of {answer.work}", note)
    if answer.rows[0].point.kind != "collective" and len({row.point.ranks for row in answer.rows}) > 1:
        note = "The step of one rank alone over that of so many."
        yield Plot(partial(_over_ranks, answer), f"Efficiency of {answer.work}", note)
    if any(own.lost.causes for own in answer.explained):
        note = "Each piece is what the removal of its cause saves, after those to its left."
        yield Plot(partial(_causes, answer), f"What {answer.work} loses to what", note)


def _time_and_cost(answer: Answer) -> Any:
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
    front = {id(row) for row in answer.front}
    points = [Design(answer.label(row), time(row), cost(row), id(row) in front) for row in answer.rows]
    relative = "" if whole else ", times the least"
    return front_plot(
        points,
        x="time of the whole training (days)" if whole else "time of the same work, times the least",
        y=f"{what}{relative}" + (" of the same work" if not whole else ""),
        spell_x=(lambda days: f"{days:,.2f} days") if whole else "{:.3f}".format,
        spell_y="{:,.0f}".format if whole else "{:.3f}".format,
    )


def _over_ranks(answer: Answer) -> Any:
    """Return the efficiency of each design over its ranks."""
    named = {
        name: sorted(
            (count, 100 * row.efficiency) for count, row in own.items() if row.efficiency is not None
        )
        for name, own in designs(answer.rows).items()
    }
    return lines(
        named, x="ranks", y="efficiency (%)", spell_x="{:.0f}".format, spell_y="{:.1f} %".format, height=360
    )


def _causes(answer: Answer) -> Any:
    explained = [own for own in answer.explained if own.lost.causes]
    names = dict.fromkeys(cause.name for own in explained for cause in own.lost.causes)
    parts: dict[str, list[float]] = {}
    for name in names:
        of = [{cause.name: own.lost.share(cause) for cause in own.lost.causes} for own in explained]
        parts[name] = [100 * (own.get(name) or 0.0) for own in of]
    return shares(
        [answer.label(own.row) for own in explained], parts, x="% of the step's time", spell="{:.1f} %".format
    )


def _spell_size(nbytes: float) -> str:
    return spell_size(int(nbytes))


def _over_sizes(answers: Sequence[Answer]) -> Iterator[Plot]:
    """Yield the times of collectives over their sizes, a plot for each of several sizes."""
    by_name: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for answer in answers:
        for row in answer.rows:
            if row.point.kind == "collective":
                own = by_name.setdefault(row.point.model, {}).setdefault(answer.label(row), [])
                own.append((row.point.nbytes, seconds_of(row)))
    for name, named in by_name.items():
        if max(map(len, named.values())) > 1:
            yield Plot(partial(_times, named), f"Time of {name} by size")


def _times(named: Mapping[str, list[tuple[float, float]]]) -> Any:
    return lines(named, x="size of the buffer", y="time", log_y=True, spell_x=_spell_size, spell_y=seconds)
