"""Page of a prediction of scaling."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from testbed.output.table import percent, seconds
from testbed.pages.page import Plot
from testbed.pages.plots.lines import lines

if TYPE_CHECKING:
    from testbed.studies.predict import Point


def scaling_question(points: Sequence[Point]) -> str:
    """Return what was asked, in words."""
    profiles, networks = ({getattr(point, name): None for point in points} for name in ("profile", "network"))
    return f"How does a training step of {', '.join(profiles)} scale on {', '.join(networks)}?"


def scaling_answer(points: Sequence[Point]) -> str:
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


def scaling_plots(points: Sequence[Point]) -> list[Plot]:
    """Return expected efficiency and exposed communication over ranks, if there are several."""
    if len({point.ranks for point in points}) < 2:
        return []
    efficiency: dict[str, list[tuple[float, float]]] = {}
    exposed: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        name = _name(point, points)
        efficiency.setdefault(name, []).append((point.ranks, 100 * point.efficiency))
        exposed.setdefault(name, []).append((point.ranks, point.exposed_seconds))
    over_ranks = partial(lines, x="ranks", spell_x="{:.0f}".format)
    return [
        Plot(
            over_ranks(efficiency, y="expected efficiency (%)", spell_y="{:.1f} %".format),
            "Scaling efficiency",
            "What the ranks compute, over the step that a real run is expected to take.",
        ),
        Plot(
            over_ranks(exposed, y="exposed communication", log_y=True, spell_y=seconds),
            "Exposed communication",
            "What the computation waits for in a step that a real run is expected to take.",
        ),
    ]


def _name(point: Point, points: Sequence[Point]) -> str:
    """Return how a line is called: what its points do not have in common with all others."""
    names = ("profile", "network", "strategy")
    differ = [name for name in names if len({getattr(own, name) for own in points}) > 1]
    return ", ".join(getattr(point, name) for name in differ or ("network",))
