"""Answers of a plan on a terminal: designs side by side, what they lose, and what would help."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from testbed.options.assumptions import NONE, assumptions_json
from testbed.output.table import counted, percent, seconds, spell_size
from testbed.planning.answers.answer import MAX_WORKS, Answer
from testbed.planning.answers.figures import BreakEven, Crossing, Target, input_of, seconds_of
from testbed.planning.evaluation import AUTO
from testbed.planning.plan import Plan, assumed_on
from testbed.planning.question import DEFAULT
from testbed.planning.row import Row
from testbed.report.designs import designs_plots
from testbed.report.scaling import interval_lines, problem_lines
from testbed.result import Grid, Part, Result, Rows, Text, asked, found, found_by, quiet

COLUMNS = (
    *asked("kind", "work", "profile", "script", "model", "network", "label", "collective", "ranks", "nbytes"),
    *asked("strategy", "bucket_cap_mb", "algorithm_asked", "timing", "transport", "device"),
    *asked("tokens_per_rank", "price_per_gpu_hour", "overrides", "scaling"),
    *found("seconds", "low", "high", "compute_seconds", "efficiency", "algorithm", "resolved", "bottleneck"),
    *found("bottleneck_utilisation", "memory_bytes", "topology"),
    *found("exposed_seconds", "num_buckets", "buckets"),
    *found_by("method", "timed_by", "inefficiencies", "engine", "transport_model", "assumed"),
    *found_by("each_size_once", "interval_from"),
    *found("problem", "tokens_per_second", "cost"),
)

MAX_ROWS = 40
"""Rows that a table has; of more, those of the front are shown."""
MAX_LINES = 8
"""Crossings and prices that are shown of a piece of work."""

LEGEND = (
    "step: of one iteration; efficiency: the step of one rank alone over it; front: no other design takes "
    "less time (time), costs less (cost) for the same work, or is better in both (•)."
)
CAUSES = (
    "lost: of the step, beyond that of one rank alone; to each cause what its removal saves, one after the "
    "other from left to right, with the same algorithm, so that they add up to what is lost."
)
GAINS = (
    "saves: of the step's time, with 10 % more of that resource (latency: a tenth shorter) and nothing else "
    "changed."
)

TITLES = {"label": "network", "bucket_cap_mb": "bucket cap (MiB)"}
"""How inputs are headed that are not headed by their names."""

_DAY, _HOUR = 86_400.0, 3600.0


def plan_result(plan: Plan) -> Result:
    """Return *plan*: the question, the answer, then what bears it out."""
    return Result(
        question=plan.question.in_words(),
        answer=_answer(plan),
        method=sorted({row.method for row in plan.rows}),
        model=plan.model,
        topologies=plan.topologies,
        assumptions=_assumptions(plan),
        rows=Rows(COLUMNS, [row.as_json() for row in plan.rows]),
        body={"answers": [own.as_json() for own in plan.answers]},
        parts=list(_parts(plan)),
    )


def _assumptions(plan: Plan) -> dict[str, Any]:
    """Return what *plan* assumes, as every report says it."""
    asked = plan.question
    of_steps = None if asked.inefficiencies is None else ",".join(asked.inefficiencies) or NONE
    own = {
        "ideal": asked.ideal,
        "model": None if asked.timing == AUTO else asked.timing,
        "transport_model": None if asked.transport == AUTO else asked.transport,
        "inefficiencies": of_steps,
        "device": asked.device,
    }
    algorithms = [name for name in asked.algorithms if name != DEFAULT]
    points = {row.point.label: row.point for row in plan.rows}
    names = [own.name for own in asked.networks]
    return assumptions_json(names, ",".join(algorithms) or None, own, assumed_on(points.values()))


def _answer(plan: Plan) -> str:
    """Return what is best, in a sentence for each of a few pieces of work."""
    if not plan.answers:
        return "None of the designs is possible."
    if len(plan.answers) <= MAX_WORKS:
        return " ".join(plan.sentences)
    best = {own.label(own.fastest): None for own in plan.answers}
    if len(best) == 1:
        return f"In all of {len(plan.answers)} pieces of work {next(iter(best))} is fastest."
    return f"Of {len(plan.answers)} pieces of work the fastest designs are {len(best)}; the table names them."


def _parts(plan: Plan) -> Iterator[Part]:
    few = len(plan.answers) <= MAX_WORKS
    yield from designs_plots(plan.answers)
    yield Text(title=plan.question.in_words())
    yield Text(plan.sentences if few else (), wrap=True)
    if few:
        for answer in plan.answers:
            yield rows_table(answer)
            if len(answer.rows) > MAX_ROWS:
                rest = len(answer.rows) - len(answer.front)
                yield Text(
                    [f"Shown is the front; {counted(rest, 'other row')} in --json and --csv."],
                    wrap=True,
                    gap=False,
                )
            if answer.explained:
                yield losses_table(answer)
                yield gains_table(answer)
            if lines := [*crossing_lines(answer.crossings), *break_even_lines(answer)]:
                yield Text(lines, wrap=True)
    else:
        yield works_table(plan.answers)
    yield Text(problem_lines(plan.rows), wrap=True, gap=False)
    yield quiet(
        *legend(plan.answers), *unknown_lines(plan.answers), *interval_lines(plan.rows), f"{plan.model}."
    )


def works_table(answers: Sequence[Answer]) -> Grid:
    """Return the fastest design of each of many pieces of work; of very many the first."""
    lines = []
    for answer in answers[:MAX_ROWS]:
        best = answer.fastest
        figures = [seconds(seconds_of(best)), "–" if best.efficiency is None else percent(best.efficiency)]
        lines.append(
            [answer.work, answer.label(best), _short(best.algorithm), best.bottleneck or "–", *figures]
        )
    columns = ("", "fastest", "algorithm", "bottleneck", "time", "efficiency")
    return Grid(columns, lines, text_columns=4)


def rows_table(answer: Answer) -> Grid:
    """Return the rows of *answer*, or of many those of its front, a line for each."""
    front = {id(row) for row in answer.front}
    target = {id(row): own for row, own in zip(answer.rows, answer.targets, strict=True)}
    rows = answer.rows if len(answer.rows) <= MAX_ROWS else answer.front
    names = [*answer.names] or ["label", "ranks"]
    algorithms = [] if "algorithm" in names else ["algorithm"]
    figures: dict[str, Callable[[Row], str]] = {
        "tokens/s": lambda row: "" if target.get(id(row)) else _tokens(row.tokens_per_second),
        "memory": lambda row: spell_size(row.memory_bytes) if row.memory_bytes else "",
        "all tokens": lambda row: _long(target[id(row)]),
        "cost": lambda row: _cost(row, target[id(row)]),
    }
    optional = {title: figure for title, figure in figures.items() if any(map(figure, rows))}
    lines = [
        [
            *(input_of(row, name) for name in names),
            *(_short(row.algorithm) for _ in algorithms),
            row.bottleneck or "–",
            seconds(seconds_of(row)),
            "–" if row.efficiency is None else percent(row.efficiency),
            *(figure(row) or "–" for figure in optional.values()),
            _mark(answer, row) if id(row) in front else "",
        ]
        for row in rows
    ]
    columns = [
        *(TITLES.get(name, name) for name in names),
        *algorithms,
        "bottleneck",
        "step" if answer.rows[0].point.kind != "collective" else "time",
        "efficiency",
        *optional,
        "front",
    ]
    return Grid(columns, lines, text_columns=len(names) + len(algorithms) + 1, title=answer.work)


def losses_table(answer: Answer) -> Grid:
    """Return what the rows that were looked into lose, a column for each cause."""
    causes = list(dict.fromkeys(cause.name for own in answer.explained for cause in own.lost.causes))
    lines = []
    for own in answer.explained:
        lost, of = own.lost, {cause.name: own.lost.share(cause) for cause in own.lost.causes}
        whole = None if lost.lost_seconds is None else lost.lost_seconds / lost.seconds
        cells = (_part(of[name]) if name in of else "" for name in causes)
        lines.append([answer.label(own.row), _part(whole), *cells])
    columns = ["", "in all", *(name.replace(" ", "\n") for name in causes)]
    return Grid(columns, lines, text_columns=1, title="Lost, of the step's time")


def gains_table(answer: Answer) -> Grid:
    """Return what 10 % more of each resource would save the rows that were looked into."""
    resources = list(dict.fromkeys(gain.resource for own in answer.explained for gain in own.gains))
    lines = []
    for own in answer.explained:
        of = {gain.resource: gain.part for gain in own.gains}
        cells = (_part(of[name]) if name in of else "" for name in resources)
        lines.append([answer.label(own.row), *cells])
    return Grid(["", *resources], lines, text_columns=1, title="Saved by 10 % more of a resource")


def crossing_lines(crossings: Sequence[Crossing]) -> list[str]:
    """Return where designs overtake each other, in words; of many the first."""
    lines = [
        f"In {own.figure}, {own.overtakes} overtakes {own.ahead} between {own.last} and {own.first} ranks."
        for own in crossings
    ]
    return [*lines[:MAX_LINES], *_and_more(len(lines), "crossing")]


def break_even_lines(answer: Answer) -> list[str]:
    """Return at which price designs cost as much as the fastest of as many ranks, in words."""
    lines = [_break_even(own) for own in answer.break_evens]
    return [*lines[:MAX_LINES], *_and_more(len(lines), "price")]


def legend(answers: Sequence[Answer]) -> list[str]:
    """Return what the columns mean."""
    if len(answers) > MAX_WORKS:
        return [f"{counted(len(answers), 'piece')} of work; all rows are in --json and --csv."]
    explained = any(own.explained for own in answers)
    return [LEGEND, *([CAUSES, GAINS] if explained else [])]


def unknown_lines(answers: Sequence[Answer]) -> list[str]:
    """Return what is not known, and why, a line for each reason."""
    why: dict[str, dict[str, None]] = {}
    for answer in answers:
        for own in answer.explained:
            for name, reason in (
                *((cause.name, cause.why_not) for cause in own.lost.causes),
                *((gain.resource, gain.why_not) for gain in own.gains),
            ):
                if reason:
                    why.setdefault(reason, {})[name] = None
    return [f"Not known (–): {', '.join(names)}: {reason}." for reason, names in why.items()]


def _short(algorithm: str) -> str:
    """Return the name of *algorithm* without the size of nodes, which follows from the network."""
    return re.sub(r"[:,]ranks_per_node=\d+$", "", algorithm)


def _mark(answer: Answer, row: Row) -> str:
    best = [name for name, own in (("time", answer.fastest), ("cost", answer.cheapest)) if own is row]
    return ", ".join(best) or "•"


def _part(known: float | None) -> str:
    return "–" if known is None else percent(known + 0.0)


def _tokens(rate: float | None) -> str:
    return f"{rate:,.0f}" if rate else ""


def _long(target: Target | None) -> str:
    if target is None:
        return ""
    if target.seconds >= _DAY:
        return f"{target.seconds / _DAY:,.1f} days"
    return f"{target.seconds / _HOUR:.1f} h" if target.seconds >= _HOUR else seconds(target.seconds)


def _cost(row: Row, target: Target | None) -> str:
    if target is not None and target.cost is not None:
        return f"{target.cost:,.0f}"
    return "" if row.cost is None else f"{row.cost:.3g} a step"


def _break_even(own: BreakEven) -> str:
    limit = f"{own.ratio:.2f} times that of {own.against}"
    if own.price is not None:
        limit = f"{own.price:.3g}, {limit}"
    return (
        f"At {own.ranks} ranks {own.design} costs less for the same work than {own.against} where its GPU "
        f"hour costs less than {limit}."
    )


def _and_more(number: int, noun: str) -> list[str]:
    return [f"… and {counted(number - MAX_LINES, 'more ' + noun)} in --json."] if number > MAX_LINES else []
