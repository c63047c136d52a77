"""The reducer against a model of a pass, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ddp.errors import ReducerError, UnknownStrategyError
from ddp.overlap import STRATEGIES, WaitingBucket, resolve_strategy
from ddp.reducer import (
    AwaitBucket,
    BackwardBegan,
    BackwardEnded,
    BucketReduced,
    Command,
    Event,
    FinishBackward,
    GradReady,
    LaunchBucket,
    ParameterNeeded,
    Phase,
    Reducer,
)

WAIT_FREE = STRATEGIES["wait_free"]
AFTER_BACKWARD = STRATEGIES["after_backward"]


@st.composite
def partitions(draw: st.DrawFn) -> list[list[int]]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    indices = draw(st.permutations(range(sum(sizes))))
    return [[indices.pop() for _ in range(size)] for size in sizes]


def feed(reducer: Reducer, *events: Event) -> list[Command]:
    return [command for event in events for command in reducer.handle(event)]


class ReducerMachine(RuleBasedStateMachine):
    """Feeds legal events in every order; a few lines of bookkeeping say what must come back."""

    @initialize(buckets=partitions(), strategy=st.sampled_from(sorted(STRATEGIES)))
    def build(self, buckets: list[list[int]], strategy: str) -> None:
        self.buckets = buckets
        self.strategy = strategy
        self.reducer = Reducer(buckets, STRATEGIES[strategy])
        self.missing: set[int] = set()
        self.launched: list[int] = []
        self.in_flight: set[int] = set()
        self.ended = False
        self.num_passes = self.num_finished = 0

    @property
    def filling(self) -> bool:
        return self.num_passes > self.num_finished and not self.ended

    def carry_out(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case LaunchBucket(bucket, collective):
                    assert collective == "all_reduce"
                    assert not self.missing & set(self.buckets[bucket])
                    assert bucket == len(self.launched)
                    self.launched.append(bucket)
                    self.in_flight.add(bucket)
                case AwaitBucket(bucket):
                    assert bucket in self.in_flight
                case FinishBackward():
                    assert self.ended
                    assert not self.in_flight
                    assert len(self.launched) == len(self.buckets)
                    self.num_finished += 1

    @precondition(lambda self: self.num_passes == self.num_finished)
    @rule()
    def begin(self) -> None:
        self.num_passes += 1
        self.missing = {parameter for bucket in self.buckets for parameter in bucket}
        self.launched, self.ended = [], False

        assert self.reducer.handle(BackwardBegan()) == ()

    @precondition(lambda self: self.filling and self.missing)
    @rule(data=st.data())
    def make_a_gradient_ready(self, data: st.DataObject) -> None:
        parameter = data.draw(st.sampled_from(sorted(self.missing)))
        self.missing.remove(parameter)

        self.carry_out(self.reducer.handle(GradReady(parameter)))

    @precondition(lambda self: self.filling and not self.missing)
    @rule()
    def end(self) -> None:
        self.ended = True

        commands = self.reducer.handle(BackwardEnded())

        self.carry_out(commands)
        awaited = [command.bucket for command in commands if isinstance(command, AwaitBucket)]
        assert awaited == sorted(self.in_flight)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def reduce_a_bucket(self, data: st.DataObject) -> None:
        bucket = data.draw(st.sampled_from(sorted(self.in_flight)))
        self.in_flight.remove(bucket)

        self.carry_out(self.reducer.handle(BucketReduced(bucket)))

    @rule(data=st.data())
    def need_a_parameter(self, data: st.DataObject) -> None:
        bucket = data.draw(st.integers(0, len(self.buckets) - 1))

        commands = self.reducer.handle(ParameterNeeded(self.buckets[bucket][0]))

        waits = bucket in self.in_flight and self.ended
        assert commands == ((AwaitBucket(bucket),) if waits else ())

    @precondition(lambda self: self.filling)
    @rule(data=st.data())
    def refuse_a_second_gradient(self, data: st.DataObject) -> None:
        ready = sorted({parameter for bucket in self.buckets for parameter in bucket} - self.missing)
        if ready:
            with pytest.raises(ReducerError, match="became ready twice"):
                self.reducer.handle(GradReady(data.draw(st.sampled_from(ready))))

    @precondition(lambda self: self.filling and self.missing)
    @rule()
    def refuse_an_early_end(self) -> None:
        with pytest.raises(ReducerError, match="without a gradient for parameter"):
            self.reducer.handle(BackwardEnded())

    @rule(data=st.data())
    def refuse_a_bucket_that_is_not_in_flight(self, data: st.DataObject) -> None:
        others = sorted(set(range(len(self.buckets))) - self.in_flight)
        if others:
            with pytest.raises(ReducerError):
                self.reducer.handle(BucketReduced(data.draw(st.sampled_from(others))))

    @invariant()
    def launches_what_its_strategy_promises(self) -> None:
        if not self.filling:
            return
        complete = [not self.missing & set(bucket) for bucket in self.buckets]
        prefix = [*complete, False].index(False)
        assert len(self.launched) == {"wait_free": prefix, "after_backward": 0}[self.strategy]

    @invariant()
    def every_pass_finishes_once(self) -> None:
        done = self.ended and not self.in_flight
        assert self.num_finished == self.num_passes - (0 if done or not self.num_passes else 1)
        assert (self.reducer.phase is Phase.IDLE) == (self.num_finished == self.num_passes)


TestReducerMachine = ReducerMachine.TestCase
TestReducerMachine.settings = settings(stateful_step_count=40, max_examples=60, deadline=None)


@given(partitions(), st.randoms(use_true_random=False))
def test_both_strategies_launch_the_same_buckets_in_the_same_order(
    buckets: list[list[int]], random: object
) -> None:
    order = [parameter for bucket in buckets for parameter in bucket]
    random.shuffle(order)  # type: ignore[attr-defined]
    events = [BackwardBegan(), *map(GradReady, order), BackwardEnded()]

    commands = [feed(Reducer(buckets, strategy), *events) for strategy in STRATEGIES.values()]

    for answers in commands:
        launches = [command for command in answers if isinstance(command, LaunchBucket)]
        assert launches == [LaunchBucket(index) for index in range(len(buckets))]


def test_wait_free_launches_during_the_pass_and_after_backward_at_its_end() -> None:
    wait_free, after_backward = Reducer([[1], [0]], WAIT_FREE), Reducer([[1], [0]], AFTER_BACKWARD)

    assert feed(wait_free, BackwardBegan(), GradReady(1)) == [LaunchBucket(0)]
    assert feed(after_backward, BackwardBegan(), GradReady(1), GradReady(0)) == []
    assert feed(after_backward, BackwardEnded()) == [
        LaunchBucket(0),
        LaunchBucket(1),
        AwaitBucket(0),
        AwaitBucket(1),
    ]


def test_an_out_of_order_bucket_waits_for_those_before_it() -> None:
    reducer = Reducer([[0], [1]], WAIT_FREE)

    assert feed(reducer, BackwardBegan(), GradReady(1)) == []
    assert feed(reducer, GradReady(0)) == [LaunchBucket(0), LaunchBucket(1)]


def test_a_pass_whose_buckets_were_all_reduced_early_finishes_when_it_ends() -> None:
    reducer = Reducer([[0]], WAIT_FREE)
    feed(reducer, BackwardBegan(), GradReady(0), BucketReduced(0))

    assert feed(reducer, BackwardEnded()) == [FinishBackward()]


def test_unused_parameters_are_named() -> None:
    reducer = Reducer([[0, 1], [2]], WAIT_FREE, names=["a.weight", "a.bias", "b.weight"])
    feed(reducer, BackwardBegan(), GradReady(1))

    with pytest.raises(ReducerError) as caught:
        reducer.handle(BackwardEnded())

    assert str(caught.value) == (
        "the backward pass ended without a gradient for parameter 0 (a.weight), parameter 2 (b.weight); use "
        "every parameter in computing the loss, or set requires_grad=False on those not used\n"
        "this pass so far:\n"
        "  BackwardBegan()\n"
        "  GradReady(parameter=1)"
    )


def test_a_long_history_is_cut_short() -> None:
    reducer = Reducer([list(range(20))], WAIT_FREE)
    feed(reducer, BackwardBegan(), *map(GradReady, range(12)))

    with pytest.raises(ReducerError, match=r"… 5 earlier events\n  GradReady\(parameter=4\)"):
        reducer.handle(GradReady(0))


def test_a_new_pass_begins_a_new_history() -> None:
    reducer = Reducer([[0]], WAIT_FREE)
    feed(reducer, BackwardBegan(), GradReady(0), BackwardEnded(), BucketReduced(0), BackwardBegan())

    with pytest.raises(ReducerError, match=r"this pass so far:\n  BackwardBegan\(\)$"):
        reducer.handle(BackwardEnded())


@pytest.mark.parametrize(
    ("before", "event", "message"),
    [
        ([], GradReady(0), "cannot happen while the reducer is idle; expected one of BackwardBegan"),
        ([], BackwardEnded(), "while the reducer is idle"),
        ([BackwardBegan()], BackwardBegan(), "while the reducer is filling"),
        ([BackwardBegan(), GradReady(0), BackwardEnded()], GradReady(0), "while the reducer is draining"),
        ([BackwardBegan()], GradReady(7), "there is no parameter 7"),
        ([BackwardBegan()], BucketReduced(3), "there is no bucket 3, there are 1"),
        ([BackwardBegan(), GradReady(0)], BucketReduced(-1), "there is no bucket -1"),
        ([BackwardBegan()], BucketReduced(0), "bucket 0 cannot have been reduced: it is incomplete"),
    ],
)
def test_an_event_that_cannot_happen_now_is_refused(before: list[Event], event: Event, message: str) -> None:
    reducer = Reducer([[0]], WAIT_FREE)
    feed(reducer, *before)

    with pytest.raises(ReducerError, match=message):
        reducer.handle(event)


class Hasty:
    name = "hasty"

    def choose(self, waiting: Sequence[WaitingBucket], backward_ended: bool) -> Sequence[int]:
        return [bucket.index for bucket in waiting]


class LastFirst:
    name = "last_first"

    def choose(self, waiting: Sequence[WaitingBucket], backward_ended: bool) -> Sequence[int]:
        return [waiting[-1].index]


class Never:
    name = "never"

    def choose(self, waiting: Sequence[WaitingBucket], backward_ended: bool) -> Sequence[int]:
        return []


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (Hasty(), r"hasty chose to launch buckets \[0, 1\]; .* in index order: none"),
        (LastFirst(), r"last_first chose to launch buckets \[1\]; .* in index order: none"),
        (Never(), r"never left buckets \[0, 1\] behind"),
    ],
)
def test_a_strategy_that_breaks_the_rules_is_named(strategy: Hasty, message: str) -> None:
    reducer = Reducer([[0], [1]], strategy)

    with pytest.raises(ReducerError, match=message):
        feed(reducer, BackwardBegan(), GradReady(1), GradReady(0), BackwardEnded())


@pytest.mark.parametrize(
    ("buckets", "message"), [([[0], []], "at least one parameter"), ([[0], [0]], "one bucket only")]
)
def test_buckets_that_are_no_partition_are_refused(buckets: list[list[int]], message: str) -> None:
    with pytest.raises(ReducerError, match=message):
        Reducer(buckets, WAIT_FREE)


def test_an_unknown_strategy_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownStrategyError, match="did you mean 'wait_free'"):
        resolve_strategy("wait-free")
