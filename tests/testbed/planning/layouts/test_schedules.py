"""Schedules of pipelines, as torch orders them: what composition assumes, of their actions replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.pipelining.schedules import get_schedule_class

from testbed.planning.layouts.script_layout import SCHEDULES, ScriptLayout

FORWARD, INPUT, WEIGHT, BOTH = "FORWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT", "FULL_BACKWARD"
PASSES = st.tuples(st.integers(8, 12), st.integers(8, 16), st.integers(6, 8))
"""Of a micro-batch on one rank: forward, backward to inputs, and to weights."""


def batch_of(schedule: str, ranks: int, rounds: int = 0) -> int:
    """Return micro-batches from which on each round adds the same, and *rounds* more."""
    layout = ScriptLayout("train.py", (), 1, schedule=schedule)
    return layout.steady_batch(ranks) + rounds * layout.round_of(ranks)


def actions_of(schedule: str, ranks: int, micro_batches: int) -> list[list[tuple[str, int]]]:
    """Return what each rank computes, and of which stage, in torch's order."""
    stages = ranks * SCHEDULES[schedule].stages
    shared = {"group_size": ranks, "group_rank": 0, "num_stages": stages, "submod": None, "is_last": False}
    own = [SimpleNamespace(**shared, stage_index=stage) for stage in range(SCHEDULES[schedule].stages)]
    order = get_schedule_class(schedule)(own if len(own) > 1 else own[0], micro_batches).pipeline_order
    return [list(_each(order[rank])) for rank in range(ranks)]


def _each(actions: Sequence[Any]) -> Iterator[tuple[str, int]]:
    for action in actions:
        for one in (action.sub_actions or [action]) if action is not None else ():
            if one.computation_type.name != "REDUCE_GRAD":
                yield one.computation_type.name, one.stage_index


def waited(schedule: str, ranks: int, micro_batches: int, passes: tuple[int, int, int]) -> float:
    """Return by how much a step is longer than what a rank computes: of equal stages, without messages.

    An action starts when its rank is free and its micro-batch has come from the stage before or behind.
    """
    left = [iter(own) for own in actions_of(schedule, ranks, micro_batches)]
    chunks = SCHEDULES[schedule].stages
    last, free, ended, started = ranks * chunks - 1, [0.0] * ranks, dict[Any, float](), Counter[Any]()
    forward, to_inputs, to_weights = (own / chunks for own in passes)
    takes = {FORWARD: forward, INPUT: to_inputs, WEIGHT: to_weights, BOTH: to_inputs + to_weights}
    following = [next(own, None) for own in left]
    while any(following):
        before = Counter(started)
        for rank, own in enumerate(left):
            while (action := following[rank]) is not None:
                what, stage = action
                kind = INPUT if what == BOTH else what
                number = started[kind, stage]
                needed = {
                    FORWARD: (FORWARD, stage - 1, number) if stage else None,
                    INPUT: (INPUT, stage + 1, number) if stage < last else (FORWARD, stage, number),
                    WEIGHT: (INPUT, stage, number),
                }[kind]
                if needed is not None and needed not in ended:
                    break
                free[rank] = max(free[rank], ended[needed] if needed else 0.0) + takes[what]
                ended[kind, stage, number] = free[rank]
                started[kind, stage] += 1
                following[rank] = next(own, None)
        assert started != before, f"{schedule} on {ranks} ranks waits for what nobody computes"
    return max(free) - micro_batches * sum(passes)


@given(
    schedule=st.sampled_from([*SCHEDULES]), ranks=st.integers(2, 6), passes=PASSES, rounds=st.integers(1, 3)
)
def test_a_bubble_is_the_same_however_many_micro_batches_there_are(
    schedule: str, ranks: int, passes: tuple[int, int, int], rounds: int
) -> None:
    few, more = (waited(schedule, ranks, batch_of(schedule, ranks, own), passes) for own in (0, rounds))

    assert more == pytest.approx(few)
    assert few >= 0


@given(schedule=st.sampled_from([*SCHEDULES]), ranks=st.integers(3, 8), passes=PASSES)
def test_each_rank_behind_the_first_adds_as_much_to_a_bubble(
    schedule: str, ranks: int, passes: tuple[int, int, int]
) -> None:
    batch = batch_of(schedule, ranks)
    two, three = (waited(schedule, own, batch_of(schedule, own), passes) for own in (2, 3))

    found = waited(schedule, ranks, batch, passes)

    composed, step = two + (ranks - 2) * (three - two), batch * sum(passes) + found
    nearly = 0.03 * step if schedule == "dualpipev" else 1e-6 * step
    assert composed == pytest.approx(found, abs=nearly)


@given(ranks=st.integers(2, 6), passes=PASSES)
def test_bubbles_are_those_of_the_papers(ranks: int, passes: tuple[int, int, int]) -> None:
    """Narayanan et al., 2021 (interleaved); Qi et al., arXiv 2401.10241 (one that is split)."""
    forward, to_inputs, to_weights = passes

    found = {own: waited(own, ranks, batch_of(own, ranks), passes) for own in SCHEDULES}

    whole = (ranks - 1) * sum(passes)
    assert found["1f1b"] == found["gpipe"] == pytest.approx(whole)
    assert found["interleaved1f1b"] == pytest.approx(whole / 2)
    assert found["interleavedzerobubble"] == pytest.approx(
        (ranks - 1) * (forward + to_inputs - to_weights) / 2
    )
    assert max(found["zbvzerobubble"], found["dualpipev"]) < found["interleaved1f1b"]
