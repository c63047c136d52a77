"""Sweep: the rows of many points, from the cache, and of all others on all cores or on a cluster.

Points of one world size and network are worked out together, as they share its routes and programs.  A worker
that dies costs the task that it had begun, which is done again elsewhere; where workers die at a task again
and again, each of its points is tried by itself, and the one that they die at has that as its problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from testbed.errors import LaunchError
from testbed.output.table import Advance, seconds
from testbed.planning.alteration import AS_IT_IS, Alteration
from testbed.planning.cache import Cache, source_digest
from testbed.planning.evaluation import evaluate
from testbed.planning.opened import Files, content_digest, note_modules, recording
from testbed.planning.points import Kind, Point
from testbed.planning.row import Row
from testbed.tasks.spread import cores, results

Item: TypeAlias = tuple[Point, Alteration]
Found: TypeAlias = tuple[Row, Files | None]
"""A row, with the files that were opened for it; None: they changed meanwhile."""

WORK: dict[Kind, int] = {"collective": 1, "step": 50, "script": 1_000_000}
"""What a point takes, for each rank: units of some tens of microseconds."""
TASK = 64_000
"""Work of a task at most: seconds."""
ALONE = 250_000
"""Work that is done in this process, where to start others would take longer."""
_TASKS = 4
"""Tasks for each worker at least, so that all end together."""
_CLUSTER = 16
"""Workers that a cluster is taken to have."""


@dataclass(frozen=True)
class Task:
    """Points for one worker, with what it must find where it runs.

    Attributes:
        items: the points, each with what is altered.
        sources: digest of this package.
        files: digest of each file that the points name, as far as one can tell by the names.
    """

    items: tuple[Item, ...]
    sources: str
    files: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, items: Sequence[Item]) -> Task:
        """Return the task of *items*."""
        names = sorted({name for point, _ in items for name in _names_in(point)})
        files = ((name, content_digest(name)) for name in names)
        return cls(tuple(items), source_digest(), tuple((name, digest) for name, digest in files if digest))

    def check(self) -> None:
        """Check that this process would find what was asked.

        Raises:
            LaunchError: it has another version of this package, or of a file.
        """
        if source_digest() != self.sources:
            raise LaunchError("a worker has another version of this package; install the same one there")
        for name, digest in self.files:
            if content_digest(name) != digest:
                raise LaunchError(
                    f"{name}: a worker finds another file there, or none; keep it in a folder that all "
                    "share, and name it by its whole path"
                )


def sweep(
    items: Sequence[Item],
    *,
    cache: Cache,
    advance: Advance,
    workers: int | None = None,
    scheduler: str | None = None,
    found: dict[Item, Row] | None = None,
) -> list[Row]:
    """Return the row of each of *items*, in their order.

    Args:
        items: points, each with what is altered.
        cache: asked first; gets what was worked out, also where this is interrupted.
        advance: is told of every row.
        workers: processes of this machine; None: one for each core, if there is enough to do.
        scheduler: address of a Dask scheduler whose workers are taken instead.
        found: gets each row as it comes, so that it has some where this is interrupted.

    Raises:
        LaunchError: the scheduler cannot be reached, has no workers, or they have other versions of files.
        Exception: an input that is wrong (see `testbed.planning.evaluation.evaluate`).
    """
    rows = {} if found is None else found
    rows |= cache.known(dict.fromkeys(items))
    for (point, _), row in rows.items():
        advance(in_words(point, row))
    missing = [item for item in dict.fromkeys(items) if item not in rows]
    number = workers or (1 if sum(map(_work, missing)) <= ALONE else cores())
    number = number if scheduler is None else _CLUSTER
    batches = batched(missing, number)
    tasks = [Task.of(own) for alike in batches for own in (zip(alike) if number == 1 else [alike])]
    while tasks:
        again: list[Task] = []
        number = min(number, len(tasks))
        with closing(
            results(evaluate_task, tasks, workers=number, scheduler=scheduler, lost=_given_up)
        ) as done:
            for task, came in done:
                if isinstance(came, str) and len(task.items) > 1:
                    again += [Task.of([item]) for item in task.items]
                    continue
                for item, (row, files) in zip(task.items, _lost(task, came), strict=True):
                    rows[item] = row
                    cache.keep(item, row, files)
                    advance(in_words(item[0], row))
        tasks = again
    return [rows[item] for item in items]


def _given_up(task: Task, said: str) -> tuple[Task, str]:
    return task, said


def _lost(task: Task, found: list[Found] | str) -> list[Found]:
    """Return the rows that were *found*, or that say why there are none, which are not to be kept."""
    if not isinstance(found, str):
        return found
    said = f"not found: {found}; is there enough memory?"
    return [(Row(point, problem=said), None) for point, _ in task.items]


def _names_in(point: Point) -> Iterator[str]:
    """Yield what may be the name of a file in the values of *point*, or in a part: ``auto:table=FILE``."""
    for value in (point.network, point.model, point.algorithm, point.device, point.compute, *point.arguments):
        yield from (value or "", *re.split("[=,:]", value or ""))


def batched(items: Iterable[Item], workers: int) -> Iterator[list[Item]]:
    """Yield *items* in tasks for so many *workers*: those of one network and world size together."""

    def place(item: Item) -> tuple[str, int, str, str, str]:
        point, altered = item
        return (point.kind, point.ranks, point.network, repr(point.overrides), repr(altered))

    ordered = sorted(items, key=place)
    most = min(TASK, sum(map(_work, ordered)) // (_TASKS * workers))
    for _, own in groupby(ordered, key=place):
        alike: list[Item] = []
        work = 0
        for item in own:
            if alike and work + _work(item) > most:
                yield alike
                alike, work = [], 0
            alike.append(item)
            work += _work(item)
        yield alike


def _work(item: Item) -> int:
    return item[0].ranks * WORK[item[0].kind]


def evaluate_task(task: Task) -> tuple[Task, list[Found] | str]:
    """Return *task* with the row of each of its points, and the files that were opened for it.

    Raises:
        LaunchError: this process would answer another question (see `Task.check`).
    """
    task.check()
    return task, [_evaluated(point, altered) for point, altered in task.items]


def _evaluated(point: Point, altered: Alteration) -> Found:
    with recording() as opened:
        row = evaluate(point, altered)
        if point.kind == "script" or ".py" in point.algorithm:
            note_modules()
    return row, opened.files()


def as_they_are(points: Iterable[Point]) -> list[Item]:
    """Return *points* with nothing altered."""
    return [(point, AS_IT_IS) for point in points]


def in_words(point: Point, row: Row) -> str:
    """Return which point is meant, and what came of it, for whoever watches."""
    took = "not possible" if row.seconds is None else seconds(row.seconds)
    return f"{point.model} on {point.label}, {point.ranks} ranks: {took}"
