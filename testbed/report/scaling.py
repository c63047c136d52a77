"""Result of a prediction of scaling: steps side by side, what carries their buckets, and their curves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from collectives.catalogue.admission import Evidence
from ddp import Profile
from ddp.profiles import load_profile
from testbed.options import evidence
from testbed.options.assumptions import assumptions_json
from testbed.output.figure import COLOURS, DASHES
from testbed.output.table import counted, grouped, percent, seconds, spans
from testbed.planning.answers.figures import label, seconds_of, varying, work_of
from testbed.planning.evaluation import topology_at
from testbed.planning.plan import algorithm_in, assumed_on, carriers_in, in_words
from testbed.planning.question import DEFAULT
from testbed.planning.row import Row
from testbed.plots.figure import Axis, Line, Lines, NoFigure, Panel, spell_time
from testbed.result import Grid, Part, Plot, Result, Rows, Text, asked, found, found_by, quiet, warning
from testbed.studies.carriers import Carrier, carrier_rows, carrier_table, faster_lines

COLUMNS = (
    *asked("profile", "network", "strategy", "ranks", "scaling"),
    *found("seconds", "low", "high", "exposed_seconds", "efficiency", "num_buckets", "algorithm"),
    *found_by(
        "interval_from", "engine", "model", "transport_model", "inefficiencies", "assumed", "each_size_once"
    ),
)
NOT_POSSIBLE = (
    *asked("profile", of=lambda row: row.point.model),
    *asked("network", of=lambda row: row.point.label),
    *asked("strategy", "ranks", of="point"),
    *found("problem"),
)
OF_PROFILES = (*asked("name"), *found("source", "device"))

LEGEND = (
    "step: time of an iteration (accumulation: of its k passes); exposed: of it, communication that the "
    "compute waits for, and inefficiencies; scaling: efficiency, the step of one rank alone over this one."
)

HALF = 50
"""Percent above which, if all efficiencies are, the axis does not begin at 0."""
MAX_SIDE_BY_SIDE = 3
"""Strategies that a table has room for beside each other."""


def scaling_result(rows: Sequence[Row], networks: Sequence[str], wanted: Mapping[str, Any]) -> Result:
    """Return what was predicted of steps.

    Args:
        rows: of `testbed.planning.plan`; of some a step is possible.
        networks: by the names under which they were asked for.
        wanted: assumptions that were asked for, by name.
    """
    refused, rows = [row for row in rows if row.problem], [row for row in rows if not row.problem]
    points = [row.point for row in rows]
    algorithm = None if points[0].algorithm == DEFAULT else points[0].algorithm
    topologies = evidence.nodes_of(*dict.fromkeys(map(topology_at, points)))
    proved = evidence.evidence_for([] if algorithm is None else [algorithm], topologies)
    profiles = [load_profile(name) for name in dict.fromkeys(point.model for point in points)]
    carriers, model = carriers_in(rows), in_words(rows)
    trained = ", ".join(dict.fromkeys(row.profile for row in rows))
    where = ", ".join(dict.fromkeys(point.label for point in points))
    return Result(
        question=f"How does a training step of {trained} scale on {where}?",
        answer=_answer(rows),
        method="simulated",
        model=model,
        topologies={f"{row.point.label} x {row.point.ranks}": row.topology for row in rows},
        assumptions=assumptions_json(networks, algorithm, wanted, assumed_on(points)),
        rows=Rows(COLUMNS, [_as_json(row) for row in rows]),
        tables={
            "profiles": Rows.of(OF_PROFILES, profiles),
            "carriers": carrier_rows(carriers),
            "not_possible": Rows.of(NOT_POSSIBLE, refused),
        },
        body=evidence.as_json(proved),
        parts=[*_parts(rows, model, carriers, profiles, proved), Text(problem_lines(refused), wrap=True)],
    )


def _as_json(row: Row) -> dict[str, Any]:
    """Return *row* as a row of this table, which names what was asked for in its own words."""
    own = {**row.as_json(), "network": row.point.label, "model": row.timed_by}
    own["algorithm"] = algorithm_in(row)
    return {column.name: own[column.name] for column in COLUMNS}


def profile_line(profile: Profile) -> str:
    """Return where the times of *profile* come from, in words."""
    return f"Profile {profile.name}: {profile.source}; {profile.device}."


def _parts(
    rows: Sequence[Row],
    model: str,
    carriers: Sequence[Carrier],
    profiles: Sequence[Profile],
    proved: Sequence[Evidence],
) -> Iterator[Part]:
    note = (
        "Efficiency: what the ranks compute, over the step that a real run is expected to take. Exposed: "
        "what the computation waits for in it."
    )
    names = " or ".join(dict.fromkeys(map(algorithm_in, rows)))
    alone = f"Scaling of data-parallel training: {names}, {rows[0].point.bucket_cap_mb:g} MiB buckets"
    yield Plot(partial(scaling_figure, rows), "Scaling efficiency", note, alone)
    yield from scaling_tables(rows)
    if (carried := carrier_table(carriers)) is not None:
        yield carried
    yield warning(*(f"{line}." for line in faster_lines(carriers)), gap=False)
    yield quiet(
        LEGEND,
        f"Simulated: {model}.",
        *assumptions(rows),
        *interval_lines(rows),
        *(f"{one}." for one in proved),
        *map(profile_line, profiles),
    )


def problem_lines(rows: Sequence[Row]) -> list[str]:
    """Return where *rows* have no figures: a line for each design, with its first reason."""
    names = [name for name in varying(rows) if name != "ranks"]
    several, lines = len({work_of(row) for row in rows}) > 1, []
    for design, own in grouped((row for row in rows if row.problem), lambda row: label(row, names)).items():
        sizes = ", ".join(spans(sorted({row.point.ranks for row in own})))
        such = f", such as {work_of(own[0])}" if several else ""
        lines.append(f"Not possible on {design}, on {sizes} ranks{such}: {own[0].problem}")
    return lines


def scaling_tables(rows: Sequence[Row]) -> Iterator[Grid]:
    """Yield a table for each profile: a line per network and number of ranks, with strategies side by side.

    Of many strategies, or where there is no room for them beside each other, a line per each.
    """
    num_strategies = len({row.point.strategy for row in rows})
    for profile in dict.fromkeys(row.profile for row in rows):
        own = [row for row in rows if row.profile == profile]
        if num_strategies > MAX_SIDE_BY_SIDE:
            yield _line_by_line(own)
        else:
            yield replace(_side_by_side(own), narrow=_line_by_line(own))


def _side_by_side(rows: Sequence[Row]) -> Grid:
    """Return the table of one profile with a line per network and number of ranks."""
    strategies = list(dict.fromkeys(row.point.strategy for row in rows))
    columns = ["network\n", "ranks\n"]
    for strategy in strategies:
        columns += [f"{strategy}\nstep", "\nexposed", "\nscaling"]
    lines, shown = [], ""
    for (network, num_ranks), own in grouped(rows, lambda row: (row.point.label, row.point.ranks)).items():
        figures = {row.point.strategy: _figures(row) for row in own}
        cells = [cell for strategy in strategies for cell in figures.get(strategy, ["–"] * 3)]
        lines.append([network if network != shown else "", str(num_ranks), *cells])
        shown = network
    buckets = counted(rows[0].num_buckets, "bucket")
    return Grid(columns, lines, title=f"{rows[0].profile}; {buckets}")


def _line_by_line(rows: Sequence[Row]) -> Grid:
    """Return the table of one profile with a line per network, number of ranks and strategy."""
    columns = ["network", "ranks", "strategy", "buckets", "step", "exposed", "scaling"]
    lines, shown = [], ("", 0)
    for place, own in grouped(rows, lambda row: (row.point.label, row.point.ranks)).items():
        for row in own:
            lead = [place[0] if place[0] != shown[0] else "", str(place[1]) if place != shown else ""]
            lines.append([*lead, row.point.strategy, str(row.num_buckets), *_figures(row)])
            shown = place
    return Grid(columns, lines, title=rows[0].profile)


def _figures(row: Row) -> list[str]:
    return [seconds(seconds_of(row)), seconds(row.exposed_seconds), percent(_efficiency(row))]


def _efficiency(row: Row) -> float:
    assert row.efficiency is not None, "of a step it is known"
    return row.efficiency


def assumptions(rows: Sequence[Row]) -> Iterator[str]:
    """Yield what is assumed, a line for the networks and world sizes of which the same is."""
    for what, own in grouped(rows, lambda row: row.assumed).items():
        networks = ", ".join(dict.fromkeys(row.point.label for row in own))
        low, high = min(row.point.ranks for row in own), max(row.point.ranks for row in own)
        sizes = f"{low} to {high} ranks" if low < high else counted(low, "rank")
        yield f"Assumed on {networks}, {sizes}: {what}."


def interval_lines(rows: Iterable[Row]) -> list[str]:
    """Return what the intervals of *rows* come from, a line for each family that was measured."""
    sources = dict.fromkeys(row.interval_from for row in rows if row.interval_from)
    return [f"Interval of nine in ten measurements, {source}." for source in sources]


def _answer(rows: Sequence[Row]) -> str:
    """Return in a sentence what is expected at the most ranks, at best and at worst."""
    most = max(row.point.ranks for row in rows)
    own = sorted((row for row in rows if row.point.ranks == most), key=lambda row: -_efficiency(row))
    best, worst = own[0], own[-1]
    said = f"On {most} ranks a step is expected to reach {percent(_efficiency(best))} of perfect scaling"
    said += f" on {best.point.label} with {best.point.strategy}"
    if best.profile != worst.profile:
        said += f" ({best.profile})"
    said += _between(best)
    if worst is not best:
        said += f", and {percent(_efficiency(worst))} on {worst.point.label} with {worst.point.strategy}"
        said += f" ({worst.profile})" if best.profile != worst.profile else ""
    return f"{said}."


def _between(row: Row) -> str:
    """Return between which efficiencies nine of ten measurements are expected, in words."""
    if row.interval is None or not row.seconds:
        return ""
    whole = _efficiency(row) * row.seconds
    low, high = percent(whole / row.interval.high), percent(whole / row.interval.low)
    return f" (nine of ten measurements: {low} to {high})"


def scaling_figure(rows: Sequence[Row]) -> Lines:
    """Return the figure of *rows*, a column per network: colour says the profile, the dash the strategy.

    Raises:
        NoFigure: they are of one number of ranks.
    """
    ranks = sorted({row.point.ranks for row in rows})
    if len(ranks) < 2:
        raise NoFigure("one number of ranks is no curve; name several, such as --ranks 1-64x2")
    least = min(100 * _efficiency(row) for row in rows)
    low = max(0.0, 10.0 * (least // 10) - 10) if least > HALF else 0.0
    efficiency = Axis("scaling efficiency (%)", low=low, high=100 + 0.04 * (100 - low))
    exposed = Axis("exposed communication per step", log=True, spell=spell_time)
    panels: list[list[Panel]] = [[], []]
    for network, column in grouped(rows, lambda row: row.point.label).items():
        above = [(row, 100 * _efficiency(row)) for row in column]
        below = [(row, row.exposed_seconds) for row in column if row.exposed_seconds]
        panels[0].append(Panel(efficiency, _lines(rows, above), heading=network))
        panels[1].append(Panel(exposed, _lines(rows, below)))
    return Lines(Axis("ranks", log=True, spell="{:.0f}".format, at=ranks), panels)


def _lines(rows: Sequence[Row], values: Sequence[tuple[Row, float]]) -> list[Line]:
    """Return a line per profile and strategy of all *rows*, through those of *values*."""
    own = grouped(values, lambda one: (one[0].profile, one[0].point.strategy))
    lines = []
    for colour, profile in enumerate(dict.fromkeys(row.profile for row in rows)):
        for dash, strategy in enumerate(reversed(dict.fromkeys(row.point.strategy for row in rows))):
            points = [(row.point.ranks, value) for row, value in own.get((profile, strategy), ())]
            look = COLOURS[colour % len(COLOURS)], dash % len(DASHES)
            lines.append(Line(f"{profile}, {strategy}", points, *look, filled=dash == 0))
    return lines
