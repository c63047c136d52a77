"""Result of a prediction of scaling: steps side by side, what carries their buckets, and their curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from testbed.options import evidence
from testbed.output.figure import COLOURS
from testbed.output.table import counted, percent, seconds
from testbed.plots.figure import NUM_DASHES, Axis, Line, Lines, NoFigure, Panel
from testbed.report.carriers import carrier_rows, carrier_table, faster_lines
from testbed.report.over_sizes import spell_time
from testbed.result import Grid, Part, Plot, Result, Rows, asked, found, found_by, quiet, warning

if TYPE_CHECKING:
    from collectives.catalogue.admission import Evidence
    from ddp import Profile
    from testbed.studies.predict import Point, Scaling

COLUMNS = (
    *asked("profile", "network", "strategy", "ranks", "scaling"),
    *found("seconds", "exposed_seconds", "efficiency", "num_buckets", "algorithm"),
    *found_by("engine", "model", "transport_model", "inefficiencies", "assumed", "each_size_once"),
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


def scaling_result(
    scaling: Scaling,
    profiles: Sequence[Profile],
    assumptions: Mapping[str, Any],
    proved: Sequence[Evidence],
) -> Result:
    """Return what was predicted of steps of *profiles*."""
    return Result(
        question=_question(scaling.points),
        answer=_answer(scaling.points),
        method="simulated",
        model=scaling.model,
        topologies=scaling.topologies,
        assumptions=assumptions,
        rows=Rows(COLUMNS, scaling.rows()),
        tables={
            "profiles": profile_rows(profiles),
            "carriers": carrier_rows(scaling.carriers),
        },
        body=evidence.as_json(proved),
        parts=list(_parts(scaling, profiles, proved)),
    )


def profile_rows(profiles: Sequence[Profile]) -> Rows:
    """Return where the times of *profiles* come from."""
    rows = [{"name": own.name, "source": own.source, "device": own.device} for own in profiles]
    return Rows(OF_PROFILES, rows)


def profile_line(profile: Profile) -> str:
    """Return where the times of *profile* come from, in words."""
    return f"Profile {profile.name}: {profile.source}; {profile.device}."


def _parts(scaling: Scaling, profiles: Sequence[Profile], proved: Sequence[Evidence]) -> Iterator[Part]:
    yield _plot(scaling.points)
    yield from scaling_tables(scaling.points)
    if (carried := carrier_table(scaling.carriers)) is not None:
        yield carried
    yield warning(*(f"{line}." for line in faster_lines(scaling.carriers)), gap=False)
    yield quiet(
        LEGEND,
        f"Simulated: {scaling.model}.",
        *assumptions(scaling.points),
        *(f"{one}." for one in proved),
        *map(profile_line, profiles),
    )


def scaling_tables(points: Sequence[Point], only_ranks: Sequence[int] | None = None) -> Iterator[Grid]:
    """Yield a table for each profile: a line per network and number of ranks, with strategies side by side.

    Of many strategies, or where there is no room for them beside each other, a line per each.
    """
    num_strategies = len({point.strategy for point in points})
    for profile in dict.fromkeys(point.profile for point in points):
        own = [
            point
            for point in points
            if point.profile == profile and (only_ranks is None or point.ranks in only_ranks)
        ]
        if num_strategies > MAX_SIDE_BY_SIDE:
            yield _line_by_line(own)
        else:
            yield replace(_side_by_side(own), narrow=_line_by_line(own))


def _side_by_side(points: Sequence[Point]) -> Grid:
    """Return the table of one profile with a line per network and number of ranks."""
    columns = ["network\n", "ranks\n"]
    for strategy in dict.fromkeys(point.strategy for point in points):
        columns += [f"{strategy}\nstep", "\nexposed", "\nscaling"]

    lines: dict[tuple[str, int], list[str]] = {}
    for point in points:
        figures = lines.setdefault((point.network, point.ranks), [])
        figures += _figures(point)

    rows, shown = [], ""
    for (network, num_ranks), figures in lines.items():
        rows.append([network if network != shown else "", str(num_ranks), *figures])
        shown = network
    buckets = counted(points[0].num_buckets, "bucket")
    return Grid(columns, rows, title=f"{points[0].profile}; {buckets}")


def _line_by_line(points: Sequence[Point]) -> Grid:
    """Return the table of one profile with a line per network, number of ranks and strategy."""
    columns = ["network", "ranks", "strategy", "buckets", "step", "exposed", "scaling"]
    rows, shown = [], ("", 0)
    for place in dict.fromkeys((point.network, point.ranks) for point in points):
        for point in points:
            if (point.network, point.ranks) != place:
                continue
            rows.append(
                [
                    place[0] if place[0] != shown[0] else "",
                    str(place[1]) if place != shown else "",
                    point.strategy,
                    str(point.num_buckets),
                    *_figures(point),
                ]
            )
            shown = place
    return Grid(columns, rows, title=points[0].profile)


def _figures(point: Point) -> list[str]:
    return [seconds(point.seconds), seconds(point.exposed_seconds), percent(point.efficiency)]


def assumptions(points: Sequence[Point]) -> Iterator[str]:
    """Yield what is assumed, a line for the networks and world sizes of which the same is."""
    alike: dict[str, list[Point]] = {}
    for point in points:
        alike.setdefault(point.assumed, []).append(point)
    for what, own in alike.items():
        networks = ", ".join(dict.fromkeys(point.network for point in own))
        low, high = min(point.ranks for point in own), max(point.ranks for point in own)
        sizes = f"{low} to {high} ranks" if low < high else counted(low, "rank")
        yield f"Assumed on {networks}, {sizes}: {what}."


def _question(points: Sequence[Point]) -> str:
    """Return what was asked, in words."""
    profiles, networks = ({getattr(point, name): None for point in points} for name in ("profile", "network"))
    return f"How does a training step of {', '.join(profiles)} scale on {', '.join(networks)}?"


def _answer(points: Sequence[Point]) -> str:
    """Return in a sentence what is expected at the most ranks, at best and at worst."""
    most = max(point.ranks for point in points)
    own = sorted((point for point in points if point.ranks == most), key=lambda point: -point.efficiency)
    best, worst = own[0], own[-1]
    said = f"On {most} ranks a step is expected to reach {percent(best.efficiency)} of perfect scaling"
    said += f" on {best.network} with {best.strategy}"
    if best.profile != worst.profile:
        said += f" ({best.profile})"
    if worst is not best:
        said += f", and {percent(worst.efficiency)} on {worst.network} with {worst.strategy}"
        said += f" ({worst.profile})" if best.profile != worst.profile else ""
    return f"{said}."


def _plot(points: Sequence[Point]) -> Plot:
    """Return efficiency above, exposed communication below, a column per network."""
    note = (
        "Efficiency: what the ranks compute, over the step that a real run is expected to take. Exposed: "
        "what the computation waits for in it."
    )
    by = " or ".join(dict.fromkeys(point.algorithm for point in points))
    alone = f"Scaling of data-parallel training: {by}"
    return Plot(partial(scaling_figure, points), "Scaling efficiency", note, alone)


def scaling_figure(points: Sequence[Point]) -> Lines:
    """Return the figure of *points*: colour says the profile, the dash the strategy.

    Raises:
        NoFigure: they are of one number of ranks.
    """
    if len({point.ranks for point in points}) < 2:
        raise NoFigure("one number of ranks is no curve; name several, such as --ranks 1-64x2")
    networks = dict.fromkeys(point.network for point in points)
    least = min((100 * point.efficiency for point in points), default=0.0)
    low = max(0.0, 10.0 * (least // 10) - 10) if least > HALF else 0.0
    efficiency = Axis("scaling efficiency (%)", low=low, high=100 + 0.04 * (100 - low))
    exposed = Axis("exposed communication per step", log=True, spell=spell_time)
    columns = [[point for point in points if point.network == network] for network in networks]
    rows = [
        [
            Panel(
                efficiency, _lines(points, [(own, 100 * own.efficiency) for own in column]), heading=network
            )
            for network, column in zip(networks, columns, strict=True)
        ],
        [
            Panel(
                exposed, _lines(points, [(own, own.exposed_seconds) for own in column if own.exposed_seconds])
            )
            for column in columns
        ],
    ]
    ranks = sorted({point.ranks for point in points})
    return Lines(Axis("ranks", log=True, spell="{:.0f}".format, at=ranks), rows)


def _lines(points: Sequence[Point], values: Sequence[tuple[Point, float]]) -> list[Line]:
    """Return a line per profile and strategy of all *points*, through those of *values*."""
    profiles = list(dict.fromkeys(point.profile for point in points))
    strategies = list(dict.fromkeys(point.strategy for point in points))
    return [
        Line(
            f"{profile}, {strategy}",
            [
                (own.ranks, value)
                for own, value in values
                if (own.profile, own.strategy) == (profile, strategy)
            ],
            COLOURS[colour % len(COLOURS)],
            dash % NUM_DASHES,
            filled=dash == 0,
        )
        for colour, profile in enumerate(profiles)
        for dash, strategy in enumerate(reversed(strategies))
    ]
