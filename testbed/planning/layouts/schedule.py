"""Schedules of pipelines: what each rank computes, in torch's order, and how long it takes when replayed.

A pass begins when its rank is free and what it needs has come from the stage before or behind it.  A message
takes the same between any two ranks, and nothing between two stages of one rank; what else messages hold up
is left out.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

FORWARD, BACKWARD, INPUT, WEIGHT = "FORWARD", "FULL_BACKWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT"
KINDS = (FORWARD, BACKWARD, INPUT, WEIGHT)
"""Of passes, by torch's names; a backward pass in two computes gradients of inputs, then of weights."""


@dataclass(frozen=True)
class Schedule:
    """The order in which a pipeline computes.

    Attributes:
        stages: of a rank.
        needed: micro-batches that each rank of the pipeline needs at least.
        steady: from so many for each rank, and so many besides, a micro-batch more adds the same to a step
            and to its peak of memory.
        in_rounds: micro-batches are a multiple of ranks.
        is_replayed: a step is what its passes take, replayed: messages are waited for where they are needed,
            and slow no passes down.
    """

    stages: int = 1
    needed: int = 1
    steady: tuple[int, int] = (1, 1)
    in_rounds: bool = False
    is_replayed: bool = False

    def steady_batch(self, ranks: int) -> int:
        """Return the micro-batches from which on each more adds the same, on so many *ranks*."""
        times, more = self.steady
        return times * ranks + more

    def round_of(self, ranks: int) -> int:
        """Return of what micro-batches on so many *ranks* are a multiple."""
        return ranks if self.in_rounds else 1


SCHEDULES = {
    "1f1b": Schedule(is_replayed=True),
    "gpipe": Schedule(),
    "interleaved1f1b": Schedule(2, steady=(2, 0), in_rounds=True),
    "interleavedzerobubble": Schedule(2, steady=(3, 0), in_rounds=True),
    "zbvzerobubble": Schedule(2, needed=2, steady=(2, 0)),
    "dualpipev": Schedule(2, needed=2, steady=(2, 1)),
}
"""Of pipelines, as `torch.distributed.pipelining.schedules.get_schedule_class` names them.

GPipe, which takes as long as 1F1B and holds more, is not tried unless it is given.
"""


class Action(NamedTuple):
    """What a rank computes: a pass of a micro-batch through a stage."""

    kind: str
    stage: int
    micro_batch: int

    @property
    def alike(self) -> tuple[str, int, bool]:
        """What actions that take the same agree in: kind, stage, and whether it is the first micro-batch."""
        return self.kind, self.stage, self.micro_batch == 0


class Pass(NamedTuple):
    """What a pass takes.

    Attributes:
        seconds: from its begin to its end, messages between ranks of its stage included.
        compute_seconds: of that, computation.
        kept_bytes: that are held behind it more than before it.
        most_bytes: that it holds at most, more than were held before it.
    """

    seconds: float = 0.0
    compute_seconds: float = 0.0
    kept_bytes: float = 0.0
    most_bytes: float = 0.0


Order: TypeAlias = Sequence[Sequence[Action]]
"""Of each rank, what it computes one after another."""


@lru_cache(maxsize=64)
def order_of(schedule: str, ranks: int, micro_batches: int, stages: int = 0) -> Order:
    """Return in which order torch lets *ranks* compute, of so many *stages* each, or as many as is usual.

    Without a schedule by 1F1B.
    """
    from torch.distributed.pipelining.schedules import get_schedule_class

    schedule = schedule or "1f1b"
    chunks = stages or SCHEDULES[schedule].stages
    shared = {"group_size": ranks, "group_rank": 0, "submod": None, "is_last": False}
    own: list[Any] = [
        SimpleNamespace(**shared, num_stages=ranks * chunks, stage_index=stage) for stage in range(chunks)
    ]
    order = get_schedule_class(schedule)(
        own if SCHEDULES[schedule].stages > 1 else own[0], micro_batches
    ).pipeline_order
    return tuple(tuple(_numbered(order[rank])) for rank in range(ranks))


def _numbered(actions: Sequence[Any]) -> Iterator[Action]:
    """Yield what a rank computes, numbered as it comes: torch's 1F1B numbers some one too high."""
    count = Counter[tuple[str, int]]()
    for action in actions:
        for one in (action.sub_actions or (action,)) if action is not None else ():
            kind, stage = one.computation_type.name, one.stage_index
            if kind in KINDS:
                passed = (INPUT, WEIGHT) if kind == BACKWARD else (kind,)
                yield Action(kind, stage, count[passed[0], stage])
                count.update((own, stage) for own in passed)


class Replayed(NamedTuple):
    """What a replayed order takes.

    Attributes:
        seconds: until the last rank is through.
        compute_seconds: of the first rank, computation.
        waited_seconds: of the first rank, between its passes.
        most_bytes: of each rank, what it holds at most more than before its first pass.
    """

    seconds: float
    compute_seconds: float
    waited_seconds: float
    most_bytes: tuple[float, ...]


def replay(order: Order, takes: Mapping[tuple[str, int, bool], Pass], message: float = 0.0) -> Replayed:
    """Return what *order* takes.

    Args:
        order: of each rank.
        takes: by `Action.alike`, what a pass does.
        message: seconds from one rank to another.

    Raises:
        ValueError: passes wait for each other.
    """
    place = {action.stage: rank for rank, actions in enumerate(order) for action in actions}
    last, ended, blocked = max(place), dict[Action, float](), dict[Action, int]()
    free, waited, positions = [0.0] * len(order), [0.0] * len(order), [0] * len(order)
    ready = deque(range(len(order)))
    while ready:
        rank = ready.popleft()
        for action in order[rank][positions[rank] :]:
            needed = _needed(action, last)
            begin = free[rank]
            if needed is not None:
                if needed not in ended:
                    blocked[needed] = rank
                    break
                begin = max(begin, ended[needed] + (message if place[needed.stage] != rank else 0.0))
            waited[rank] += begin - free[rank]
            free[rank] = begin + takes[action.alike].seconds
            positions[rank] += 1
            done = action._replace(kind=INPUT) if action.kind == BACKWARD else action
            ended[done] = free[rank]
            if done in blocked:
                ready.append(blocked.pop(done))
    if blocked:
        raise ValueError(
            f"a schedule in which passes wait for each other: none goes on before {min(blocked)}"
        )
    computed = sum(takes[action.alike].compute_seconds for action in order[0])
    return Replayed(max(free), computed, waited[0], tuple(_most_bytes(actions, takes) for actions in order))


def _needed(action: Action, last: int) -> Action | None:
    """Return what *action* waits for, of *last* the last stage; None: for nothing but its rank."""
    kind, stage, micro_batch = action
    if kind == FORWARD:
        return Action(FORWARD, stage - 1, micro_batch) if stage else None
    if kind == WEIGHT:
        return None
    if stage == last:
        return Action(FORWARD, stage, micro_batch)
    return Action(INPUT, stage + 1, micro_batch)


def _most_bytes(actions: Sequence[Action], takes: Mapping[tuple[str, int, bool], Pass]) -> float:
    held = most = 0.0
    for action in actions:
        own = takes[action.alike]
        most = max(most, held + own.most_bytes)
        held += own.kept_bytes
    return most
