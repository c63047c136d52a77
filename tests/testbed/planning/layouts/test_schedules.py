"""Schedules of pipelines, as torch orders them, replayed: bubbles, and what ranks hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.planning.layouts.schedule import (
    BACKWARD,
    FORWARD,
    INPUT,
    SCHEDULES,
    WEIGHT,
    Action,
    Pass,
    order_of,
    replay,
)
from testbed.planning.layouts.step import Passes, filled_by_weights

PASSES = st.tuples(st.integers(8, 12), st.integers(8, 16), st.integers(6, 8))
"""Of a micro-batch on one rank: forward, backward to inputs, and to weights."""
RANKS = st.integers(2, 6)


def replayed(schedule, ranks, rounds, passes):
    """Return a step of equal stages with so many rounds more than it needs, and how long it waits.

    That is by how much it is longer than what a rank computes.
    """
    own = SCHEDULES[schedule]
    batch = own.steady_batch(ranks) + rounds * own.round_of(ranks)
    forward, to_inputs, to_weights = (one / own.stages for one in passes)
    takes = {
        FORWARD: Pass(forward, kept_bytes=1, most_bytes=1),
        BACKWARD: Pass(to_inputs + to_weights, kept_bytes=-1),
        INPUT: Pass(to_inputs),
        WEIGHT: Pass(to_weights, kept_bytes=-1),
    }
    found = replay(order_of(schedule, ranks, batch), of_stages(takes, ranks * own.stages))
    return found, found.seconds - batch * sum(passes)


def of_stages(takes, stages):
    """Return what passes take that are the same in all stages, of the first micro-batch, too."""
    return {
        (kind, stage, is_first): own
        for kind, own in takes.items()
        for stage in range(stages)
        for is_first in (True, False)
    }


@given(schedule=st.sampled_from([*SCHEDULES]), ranks=RANKS, passes=PASSES, rounds=st.integers(1, 3))
def test_a_bubble_is_the_same_however_many_micro_batches_there_are(schedule, ranks, passes, rounds):
    few, more = (replayed(schedule, ranks, own, passes)[1] for own in (0, rounds))

    assert more == pytest.approx(few)
    assert few >= 0


@given(ranks=RANKS, passes=PASSES)
def test_bubbles_are_those_of_the_papers(ranks, passes):
    """Narayanan et al., 2021 (interleaved); Qi et al., arXiv 2401.10241 (one that is split)."""
    forward, to_inputs, to_weights = passes

    found = {own: replayed(own, ranks, 0, passes)[1] for own in SCHEDULES}

    whole = (ranks - 1) * sum(passes)
    assert found["1f1b"] == found["gpipe"] == pytest.approx(whole)
    assert found["interleaved1f1b"] == pytest.approx(whole / 2)
    assert found["interleavedzerobubble"] == pytest.approx(
        (ranks - 1) * (forward + to_inputs - to_weights) / 2
    )
    assert max(found["zbvzerobubble"], found["dualpipev"]) < found["interleaved1f1b"]


def by_zero_bubble(times, batch, passes):
    """Return a step of ZB-H1, replayed and composed: a stage for each of *times*, so many times *passes*."""
    forward, to_inputs, to_weights = passes
    stages = [Passes(own * forward, own * (to_inputs + to_weights), own * to_weights) for own in times]
    takes = {
        (kind, stage, is_first): own
        for stage, (forth, back, weights) in enumerate(stages)
        for kind, own in (
            (FORWARD, Pass(forth, kept_bytes=1, most_bytes=1)),
            (BACKWARD, Pass(back, kept_bytes=-1)),
            (INPUT, Pass(back - weights)),
            (WEIGHT, Pass(weights, kept_bytes=-1)),
        )
        for is_first in (True, False)
    }
    both = [own.forward + own.backward for own in stages]
    found = replay(order_of("interleavedzerobubble", len(times), batch, stages=1), takes)
    return found, batch * max(both) + sum(both) - max(both) - filled_by_weights(both, stages)


@given(times=st.lists(st.floats(1, 1.3), min_size=2, max_size=6), passes=PASSES, rounds=st.integers(1, 4))
def test_zero_bubble_of_one_stage_a_rank_takes_and_holds_what_composed_steps_say(times, passes, rounds):
    """Exactly of equal stages; of unequal ones between what the fastest and the slowest would take."""
    ranks = len(times)
    equal, composed = by_zero_bubble([1.0] * ranks, rounds * ranks, passes)

    unequal = by_zero_bubble(times, rounds * ranks, passes)

    assert equal.seconds == pytest.approx(composed)
    assert max(equal.most_bytes) == ranks
    for seconds in (unequal[0].seconds, unequal[1]):
        assert min(times) * composed <= seconds * (1 + 1e-9)
        assert seconds <= max(times) * composed * (1 + 1e-9)


@given(ranks=RANKS, passes=PASSES, rounds=st.integers(0, 3))
def test_of_1f1b_a_rank_holds_a_micro_batch_for_each_behind_it_and_of_gpipe_all(ranks, passes, rounds):
    one, gpipe = (replayed(own, ranks, rounds, passes)[0] for own in ("1f1b", "gpipe"))

    assert one.most_bytes == tuple(range(ranks, 0, -1))
    assert gpipe.most_bytes == (ranks + 1 + rounds,) * ranks


@given(ranks=RANKS, message=st.integers(1, 5))
def test_messages_are_waited_for_while_a_pipeline_fills_and_drains(ranks, message):
    """By GPipe alone, whose passes follow one another: the last rank waits for nothing in between."""
    takes = of_stages(dict.fromkeys((FORWARD, BACKWARD), Pass(10)), ranks)

    without, with_messages = (replay(order_of("gpipe", ranks, ranks), takes, own) for own in (0, message))

    assert with_messages.seconds - without.seconds == 2 * (ranks - 1) * message


def test_passes_that_wait_for_each_other_are_named():
    order = [
        [Action(BACKWARD, 0, 0), Action(FORWARD, 0, 0)],
        [Action(FORWARD, 1, 0), Action(BACKWARD, 1, 0)],
    ]
    takes = of_stages({FORWARD: Pass(1.0), BACKWARD: Pass(2.0)}, 2)

    with pytest.raises(ValueError, match="wait for each other"):
        replay(order, takes)
    assert replay([order[0][::-1], order[1]], takes).seconds == 6.0
