"""Scaling of training steps as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from testbed.output.table import counted, percent, seconds, table

if TYPE_CHECKING:
    from rich.table import Table

    from testbed.studies.predict import Point

STRATEGY_TITLES = {
    "after_backward": "no overlap",
    "per_parameter": "overlap, no buckets",
    "wait_free": "overlap",
    "mg_wfbp": "optimal merging",
    "priority": "priority",
    "dear": "decoupled halves",
    "zero1": "sharded optimizer",
    "accumulate": "accumulation",
    "data_parallel": "DataParallel",
}
"""How strategies are headed in tables and legends, before their parameters."""

LEGEND = (
    "step: time of an iteration (accumulation: of its k passes); exposed: of it, communication that the "
    "compute waits for; scaling: efficiency, the compute's share of the step; expected: the same of the step "
    "that a real run is expected to take."
)

MAX_SIDE_BY_SIDE = 3
"""Strategies that a table has room for beside each other."""


def strategy_title(name: str) -> str:
    """Return how a strategy is headed: ``priority:credits=2`` as *priority (credits=2)*."""
    kind, _, parameters = name.partition(":")
    title = STRATEGY_TITLES.get(kind, kind)
    return f"{title} ({parameters.replace(',', ', ')})" if parameters else title


def scaling_tables(points: Sequence[Point], only_ranks: Sequence[int] | None = None) -> Iterator[Table]:
    """Yield a table for each profile: a line per network and number of ranks, of many strategies per each."""
    strategies = list(dict.fromkeys(point.strategy for point in points))
    if len(strategies) > MAX_SIDE_BY_SIDE:
        yield from _long_tables(points, only_ranks)
        return
    columns = ["network\n", "ranks\n"]
    expected = ["\nexpected"] if any(point.counts for point in points) else []
    for strategy in strategies:
        columns += [f"{strategy_title(strategy)}\nstep", "\nexposed", "\nscaling", *expected]
    for profile in dict.fromkeys(point.profile for point in points):
        lines: dict[tuple[str, int], list[str]] = {}
        for point in points:
            if point.profile == profile and (only_ranks is None or point.ranks in only_ranks):
                figures = lines.setdefault((point.network, point.ranks), [])
                figures += _ideal(point)
                if expected:
                    figures.append(percent(point.efficiency_expected))
        rows, shown = [], ""
        for (network, num_ranks), figures in lines.items():
            rows.append([network if network != shown else "", str(num_ranks), *figures])
            shown = network
        num_buckets = next(point.num_buckets for point in points if point.profile == profile)
        yield table(columns, rows, title=f"{profile}; {counted(num_buckets, 'bucket')}")


def _long_tables(points: Sequence[Point], only_ranks: Sequence[int] | None) -> Iterator[Table]:
    """Yield a table for each profile, with a line per network, number of ranks and strategy."""
    columns = ["network", "ranks", "strategy", "buckets", "step", "exposed", "scaling"]
    expects = any(point.counts for point in points)
    if expects:
        columns.append("expected")
    for profile in dict.fromkeys(point.profile for point in points):
        own = [
            point
            for point in points
            if point.profile == profile and (only_ranks is None or point.ranks in only_ranks)
        ]
        places = dict.fromkeys((point.network, point.ranks) for point in own)
        rows, shown = [], ("", 0)

        for place in places:
            for point in own:
                if (point.network, point.ranks) != place:
                    continue
                rows.append(
                    [
                        place[0] if place[0] != shown[0] else "",
                        str(place[1]) if place != shown else "",
                        strategy_title(point.strategy),
                        str(point.num_buckets),
                        *_ideal(point),
                        *([percent(point.efficiency_expected)] if expects else []),
                    ]
                )
                shown = place

        yield table(columns, rows, title=profile)


def _ideal(point: Point) -> list[str]:
    """Return the cells of step, exposed communication and efficiency; dashes where they are not known."""
    if point.step_seconds is None or point.exposed_seconds is None or point.efficiency is None:
        return ["–"] * 3
    return [seconds(point.step_seconds), seconds(point.exposed_seconds), percent(point.efficiency)]


def expectations(points: Sequence[Point]) -> Iterator[str]:
    """Yield what *expected* means, a line for the networks and world sizes for which it means the same."""
    alike: dict[str, list[Point]] = {}
    for point in points:
        alike.setdefault(point.expected, []).append(point)
    for what, own in alike.items():
        networks = ", ".join(dict.fromkeys(point.network for point in own))
        low, high = min(point.ranks for point in own), max(point.ranks for point in own)
        sizes = f"{low} to {high} ranks" if low < high else counted(low, "rank")
        yield f"Expected on {networks}, {sizes}: {what}."
