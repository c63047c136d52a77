"""Draws for a function that runs as ranks: faults that change only time and order, beside those of a test."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from collectives.virtual import VirtualRun
from collectives.virtual.faults import VirtualCondition
from sim.cluster import RandomOrder
from testbed.fuzzing.faults import ONLY_TIME, Calm, condition_of, draw_fault
from testbed.fuzzing.values import digest

_MOST_FAULTS = 3


def draw_of_time(
    seed: int, run: VirtualRun, given: Sequence[VirtualCondition], *, is_timed: bool
) -> tuple[tuple[VirtualCondition, ...], RandomOrder]:
    """Return the conditions and the order of events that *seed* means for a function.

    Args:
        seed: from which they are drawn.
        run: of the function, without them.
        given: conditions that hold anyway; none of their kinds is drawn.
        is_timed: whether computation takes time; else there are seeds under which messages take none.
    """
    random = Random(f"function {seed}")
    topology = run.cluster.topology
    calm = Calm(topology, max(1, *run.times_ps), len(run.report.iterations))
    kinds = list(ONLY_TIME)
    if topology.num_ranks < 2:
        kinds.remove("traffic")
    chosen = random.sample(kinds, random.randrange(_MOST_FAULTS + 1))
    drawn = [condition_of(draw_fault(kind, topology.num_ranks, random), calm) for kind in chosen]
    held = {type(condition) for condition in given}
    conditions = tuple(condition for condition in drawn if type(condition) not in held)
    at_any_speed = not (conditions or given or is_timed)
    return (*given, *conditions), RandomOrder(random.randrange(1 << 16), at_any_speed=at_any_speed)


def parted(own: Iterable[object], others: Iterable[object]) -> str:
    """Return in words which rank returned something else than in another run; nothing if none did."""
    for rank, (result, other) in enumerate(zip(own, others, strict=True)):
        if digest(result) != digest(other):
            return f"rank {rank} returned {_short(result)}, without faults {_short(other)}"
    return ""


def _short(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:79] + "…"
