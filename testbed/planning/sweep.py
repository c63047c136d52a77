"""Sweep: the rows of many points, from the cache, and of all others on all cores or on a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeAlias

from testbed.output.table import Advance
from testbed.planning.alteration import AS_IT_IS, Alteration
from testbed.planning.cache import Cache
from testbed.planning.evaluation import evaluate
from testbed.planning.points import Kind, Point
from testbed.planning.row import Row
from testbed.tasks import cores, results

Item: TypeAlias = tuple[Point, Alteration]
BATCHES: dict[Kind, int] = {"collective": 100, "step": 8, "script": 1}
"""Points of one task: enough that their work outweighs the task's own, few enough for all workers."""
ALONE = 24
"""Points that are worked out in this process, where to start others would take longer."""


def sweep(
    items: Sequence[Item],
    *,
    cache: Cache,
    advance: Advance,
    workers: int | None = None,
    scheduler: str | None = None,
) -> list[Row]:
    """Return the row of each of *items*, in their order.

    Args:
        items: points, each with what is altered.
        cache: asked first; gets what was worked out, also where this is interrupted.
        advance: is told of every row.
        workers: processes of this machine; None: one for each core, if there is enough to do.
        scheduler: address of a Dask scheduler whose workers are taken instead.

    Raises:
        LaunchError: the scheduler cannot be reached, or a worker has died at a task again and again.
        Exception: an input that is wrong (see `testbed.planning.evaluation.evaluate`).
    """
    rows = cache.known(dict.fromkeys(items))
    for point, _ in rows:
        advance(in_words(point))
    missing = [item for item in dict.fromkeys(items) if item not in rows]
    batches = list(batched(missing))
    if workers is None and scheduler is None:
        few = len(missing) <= ALONE and all(point.kind != "script" for point, _ in missing)
        workers = 1 if few else min(cores(), len(batches))
    try:
        for done in results(evaluate_batch, batches, workers=workers or 1, scheduler=scheduler):
            for item, row in done:
                rows[item] = row
                cache.keep(item, row)
                advance(in_words(item[0]))
    finally:
        cache.write()
    return [rows[item] for item in items]


def batched(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield *items* in tasks: those of one network and world size together, as they share its routes."""

    def place(item: Item) -> tuple[str, str, int, str, str]:
        point, altered = item
        return (point.network, repr(point.overrides), point.ranks, repr(altered), point.kind)

    for _, own in groupby(sorted(items, key=place), key=place):
        alike = list(own)
        size = BATCHES[alike[0][0].kind]
        for start in range(0, len(alike), size):
            yield alike[start : start + size]


def evaluate_batch(items: Sequence[Item]) -> list[tuple[Item, Row]]:
    """Return *items* with their rows."""
    return [((point, altered), evaluate(point, altered)) for point, altered in items]


def as_they_are(points: Iterable[Point]) -> list[Item]:
    """Return *points* with nothing altered."""
    return [(point, AS_IT_IS) for point in points]


def in_words(point: Point) -> str:
    """Return which point is meant, for whoever watches."""
    return f"{point.model} on {point.label}, {point.ranks} ranks"
