"""A picture of each shipped algorithm, and a page of the site that sets them side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collectives.errors import NotSupportedError
from collectives.program import Algorithm
from collectives.program.contracts import CONTRACTS
from testbed.plots.schedule import ProgramSchedule, schedule_of
from testbed.plots.schedule_svg import schedule_svg

PAGE = "README.md"
DRAWN_SIZES = (8, 4, 6, 9, 16)
DRAWN_WITH = {"hierarchical": {"ranks_per_node": 2}}
"""Parameters without which so few ranks would not show the idea."""

THUMBNAIL_WIDTH = 270
ABREAST = 3

_HEAD = """\
# Schedules side by side

Every shipped algorithm on 8 ranks. Ranks stand side by side, steps go downwards, an arrow is a message:
blue is reduced into what the receiver holds, orange overwrites it. A tall picture pays for many latencies,
one with dense arrows or long ranges of chunks for many bytes. A picture leads to its full size, a name to
idea, source and costs; `testbed show NAME --ranks 4 --plot FILE` draws any other.
"""


def gallery(algorithms: Sequence[Algorithm]) -> dict[str, str]:
    """Return the files of the gallery by name: one picture for each of *algorithms*, and the page."""
    schedules = {picture_name(own): picture_of(own) for own in algorithms}
    sections = [
        _section(collective, [own for own in algorithms if own.collective == collective], schedules)
        for collective in CONTRACTS
    ]
    pictures = {name: schedule_svg(schedule) for name, schedule in schedules.items()}
    return {**pictures, PAGE: "\n".join([_HEAD, *sections])}


def picture_name(algorithm: Algorithm) -> str:
    """Return the name of the picture of *algorithm*."""
    return f"{algorithm.collective}-{algorithm.name}.svg"


def picture_of(algorithm: Algorithm) -> ProgramSchedule:
    """Return what the picture of *algorithm* shows."""
    return schedule_of(as_drawn(algorithm), first_accepted(algorithm, DRAWN_SIZES))


def as_drawn(algorithm: Algorithm) -> Algorithm:
    """Return *algorithm* with the parameters with which it is drawn."""
    return algorithm.with_parameters(**DRAWN_WITH.get(algorithm.name, {}))


def first_accepted(algorithm: Algorithm, world_sizes: Iterable[int]) -> int:
    """Return the first of *world_sizes* that *algorithm* does not refuse."""
    for world_size in world_sizes:
        try:
            next(algorithm.steps(0, world_size), None)
        except NotSupportedError:
            continue
        return world_size
    raise ValueError(f"{algorithm} refuses every one of {', '.join(map(str, world_sizes))} ranks")


def _section(collective: str, members: Sequence[Algorithm], schedules: dict[str, ProgramSchedule]) -> str:
    if not members:
        return ""
    cells = [_cell(own, schedules[picture_name(own)]) for own in members]
    rows = [cells[first : first + ABREAST] for first in range(0, len(cells), ABREAST)]
    table = ["\n".join(["<tr>", *row, "</tr>"]) for row in rows]
    return "\n".join([f"## {collective}", "<table>", *table, "</table>", ""])


def _cell(algorithm: Algorithm, schedule: ProgramSchedule) -> str:
    name = picture_name(algorithm)
    said = f"{len(schedule.messages)} messages"
    image = f'<img src="{name}" width="{THUMBNAIL_WIDTH}" alt="{algorithm.name}: {said}">'
    link = f"../algorithms.md#{algorithm.name}-{algorithm.collective}"
    caption = f'<a href="{link}">{algorithm.name}</a>: {said}'
    return f'<td valign="top">{caption}<br><a href="{name}">{image}</a></td>'
