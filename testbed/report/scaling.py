"""Scaling of training steps as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.output.table import counted, percent, seconds, table

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table

    from testbed.studies.predict import Point

LEGEND = (
    "step: time of an iteration (accumulation: of its k passes); exposed: of it, communication that the "
    "compute waits for, and inefficiencies; scaling: efficiency, the step of one rank alone over this one."
)

MAX_SIDE_BY_SIDE = 3
"""Strategies that a table has room for beside each other."""


@dataclass(frozen=True)
class WhatFits:
    """A table in two layouts, of which the first that the terminal has room for is shown."""

    wide: Table
    narrow: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table to show."""
        fits = console.measure(self.wide, options=options.update(max_width=1000)).maximum
        yield self.wide if fits <= options.max_width else self.narrow


def scaling_tables(
    points: Sequence[Point], only_ranks: Sequence[int] | None = None
) -> Iterator[RenderableType]:
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
            yield WhatFits(_side_by_side(own), _line_by_line(own))


def _side_by_side(points: Sequence[Point]) -> Table:
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
    return table(columns, rows, title=f"{points[0].profile}; {buckets}")


def _line_by_line(points: Sequence[Point]) -> Table:
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
    return table(columns, rows, title=points[0].profile)


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
