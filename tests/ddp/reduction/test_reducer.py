"""The reducer against a model of a pass, and what it refuses."""

import re
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ddp.errors import ReducerError, UnknownStrategyError
from ddp.reduction.events import (
    AwaitBucket,
    BackwardBegan,
    BackwardEnded,
    BucketFilled,
    BucketReduced,
    Command,
    Event,
    EverythingNeeded,
    FinishBackward,
    GradReady,
    LaunchBucket,
    OptimizerStepped,
    ParameterNeeded,
    UpdateBucket,
)
from ddp.reduction.overlap import STRATEGIES, Situation, Strategy, resolve_strategy
from ddp.reduction.reducer import Phase, Reducer
from ddp.reduction.strategies.plan import Bucket, Layout, LinearCost, PassTiming, Plan, PlannedLaunch
from ddp.reduction.strategies.strategy import Barrier
from sim.cluster.order import RandomOrder
from tests.ddp.reduction.reducers import Reducers

WAIT_FREE = STRATEGIES["wait_free"]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    sizes = draw(st.lists(st.integers(0, 40).map(lambda elements: 16 * elements), min_size=1, max_size=8))
    order = draw(st.permutations(range(len(sizes))))
    ready = dict(zip(order, sorted(draw(st.integers(0, 1000)) for _ in sizes), strict=True))
    cost = LinearCost(draw(st.integers(0, 300)), draw(st.integers(0, 2000)))
    return Layout(
        sizes,
        [draw(st.sampled_from(["float32", "float64"])) for _ in sizes],
        (draw(st.integers(1, 600)),),
        order,
        PassTiming(tuple(ready[index] for index in range(len(sizes))), cost),
    )


NAMES = [
    *STRATEGIES, "priority:partition_mb=0.0001,credits=1", "priority:partition_mb=0.0002,credits=2",
    "zero1:prefetch=True", "accumulate:k=3,last=after_backward",
]  # fmt: skip


def feed(reducer: Reducer, *events: Event) -> list[Command]:
    return [command for event in events for command in reducer.handle(event)]


class ReducerMachine(RuleBasedStateMachine):
    """Feeds legal events in every order; a few lines of bookkeeping say what must come back."""

    @initialize(layout=layouts(), name=st.sampled_from(NAMES))
    def build(self, layout: Layout, name: str) -> None:
        self.strategy = resolve_strategy(name)
        self.plan = self.strategy.plan(layout)
        self.reducer = Reducer(self.plan, self.strategy)
        self.parameters = set(range(len(layout.nbytes)))
        self.missing = set()
        self.launched = []
        self.done = []
        self.updated = []
        self.awaited = []
        self.ended = self.stepped = False
        self.num_passes = self.num_finished = 0

    @property
    def filling(self) -> bool:
        return self.num_passes > self.num_finished and not self.ended

    @property
    def in_flight(self) -> list[PlannedLaunch]:
        return [launch for launch in self.launched if launch not in self.done]

    def carry_out(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case LaunchBucket(bucket, collective):
                    launch = PlannedLaunch(bucket, collective)
                    assert launch == self.plan.launches[len(self.launched)]
                    assert not self.missing & set(self.plan.buckets[bucket].parameters)
                    assert bucket not in [own.bucket for own in self.in_flight]
                    before = [own.collective for own in self.done if own.bucket == bucket]
                    if self.strategy.update_after in before:
                        assert bucket in self.updated
                    self.launched.append(launch)
                    assert len(self.in_flight) <= getattr(self.strategy, "credits", len(self.launched))
                case AwaitBucket(bucket):
                    self.awaited.append(bucket)
                case UpdateBucket(bucket):
                    assert self.stepped
                    assert bucket not in self.updated
                    assert PlannedLaunch(bucket, str(self.strategy.update_after)) in self.done
                    self.updated.append(bucket)
                case FinishBackward():
                    assert self.ended
                    assert self.done == list(self.plan.launches)
                    if self.strategy.update_after:
                        assert sorted(self.updated) == list(range(len(self.plan.buckets)))
                    self.num_finished += 1

    @precondition(lambda self: self.num_passes == self.num_finished)
    @rule()
    def begin(self) -> None:
        self.num_passes += 1
        self.missing = set(self.parameters)
        self.launched, self.done, self.updated, self.awaited = [], [], [], []
        self.ended = self.stepped = False

        assert self.reducer.handle(BackwardBegan()) == ()

    @precondition(lambda self: self.filling and self.missing)
    @rule(data=st.data())
    def make_a_gradient_ready(self, data: st.DataObject) -> None:
        parameter = data.draw(st.sampled_from(sorted(self.missing)))
        self.missing.remove(parameter)

        self.carry_out(self.reducer.handle(GradReady(parameter)))

    @precondition(lambda self: self.filling)
    @rule(data=st.data())
    def fill_a_bucket(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.plan.buckets) - 1))
        mine = {*self.plan.buckets[number].parameters}
        shared = [own for own in self.plan.buckets if mine & {*own.parameters}]
        if len(shared) > 1:
            with pytest.raises(ReducerError, match="shares gradients with others"):
                self.reducer.handle(BucketFilled(number))
        elif mine - self.missing:
            with pytest.raises(ReducerError, match="became ready twice"):
                self.reducer.handle(BucketFilled(number))
        else:
            self.missing -= mine
            self.carry_out(self.reducer.handle(BucketFilled(number)))

    @precondition(lambda self: self.filling and not self.missing)
    @rule()
    def end(self) -> None:
        self.ended = True

        self.carry_out(self.reducer.handle(BackwardEnded()))

        if self.strategy.barrier is Barrier.BACKWARD_END:
            assert self.awaited == [launch.bucket for launch in self.in_flight]

    @precondition(lambda self: self.reducer.phase is Phase.HOLDING)
    @rule()
    def step(self) -> None:
        self.stepped = True

        self.carry_out(self.reducer.handle(OptimizerStepped()))

    @precondition(lambda self: self.in_flight)
    @rule()
    def complete_a_collective(self) -> None:
        launch = self.in_flight[0]
        self.done.append(launch)

        self.carry_out(self.reducer.handle(BucketReduced(launch.bucket)))

    @precondition(lambda self: self.awaited)
    @rule()
    def obey_the_next_await(self) -> None:
        bucket = self.awaited.pop(0)
        awaited = [launch for launch in self.in_flight if launch.bucket == bucket]
        while awaited and awaited[0] in self.in_flight:
            self.complete_a_collective()

    @precondition(lambda self: not self.awaited)
    @rule(data=st.data())
    def need_a_parameter(self, data: st.DataObject) -> None:
        parameter = data.draw(st.sampled_from(sorted(self.parameters)))
        mine = [number for number, own in enumerate(self.plan.buckets) if parameter in own.parameters]

        self.carry_out(self.reducer.handle(ParameterNeeded(parameter)))

        if self.reducer.phase is Phase.DRAINING:
            self.obey_all()
            assert all(launch in self.done for launch in self.plan.launches if launch.bucket in mine)
            assert self.strategy.update_after is None or {*mine} <= {*self.updated}

    @precondition(lambda self: not self.awaited)
    @rule()
    def need_everything(self) -> None:
        draining = self.reducer.phase is Phase.DRAINING

        self.carry_out(self.reducer.handle(EverythingNeeded()))

        self.obey_all()
        assert not draining or self.reducer.phase is Phase.IDLE

    def obey_all(self) -> None:
        while self.awaited:
            assert self.awaited[0] in [own.bucket for own in self.in_flight]
            self.obey_the_next_await()

    @precondition(lambda self: self.filling)
    @rule(data=st.data())
    def refuse_a_second_gradient(self, data: st.DataObject) -> None:
        ready = sorted(self.parameters - self.missing)
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
        moving = {launch.bucket for launch in self.in_flight}
        others = sorted(set(range(len(self.plan.buckets))) - moving)
        if others:
            with pytest.raises(ReducerError):
                self.reducer.handle(BucketReduced(data.draw(st.sampled_from(others))))

    @invariant()
    def launches_what_its_strategy_promises(self) -> None:
        if self.strategy.name == "wait_free" and self.filling:
            complete = [not self.missing & {*bucket.parameters} for bucket in self.plan.buckets]
            assert len(self.launched) == [*complete, False].index(False)
        if self.strategy.kind in ("after_backward", "data_parallel") and not self.ended:
            assert not self.launched
        if self.strategy.kind == "dear" and not self.ended:
            assert all(own.collective == "reduce_scatter" for own in self.launched)

    @invariant()
    def something_moves_until_the_pass_is_over(self) -> None:
        if self.ended and self.reducer.phase is Phase.DRAINING:
            assert self.in_flight

    @invariant()
    def every_pass_finishes_once(self) -> None:
        owes_a_step = self.strategy.update_after is not None and not self.stepped
        done = self.ended and not owes_a_step and len(self.done) == len(self.plan.launches)
        assert self.num_finished == self.num_passes - (0 if done or not self.num_passes else 1)
        assert (self.reducer.phase is Phase.IDLE) == (self.num_finished == self.num_passes)


TestReducerMachine = ReducerMachine.TestCase
TestReducerMachine.settings = settings(
    stateful_step_count=60, max_examples=2 * settings.default.max_examples, deadline=None
)


@given(layouts(), st.sampled_from(NAMES), st.integers(1, 5), st.integers(0, 2**32))
@settings(max_examples=120)
def test_ranks_launch_alike_whatever_order_their_gradients_become_ready_in_and_never_deadlock(
    layout, name, world_size, seed
):
    strategy, chance = resolve_strategy(name), Random(seed)
    plan = strategy.plan(layout)
    parameters = range(len(layout.nbytes))
    orders = [chance.sample(parameters, len(parameters)) for _ in range(world_size)]

    ranks = Reducers(plan, strategy, orders).step(RandomOrder(seed))

    assert all(rank.launched == list(plan.launches) for rank in ranks)
    assert all(rank.num_finished == 1 for rank in ranks)


NAMES_OF_THREE = ["a.weight", "a.bias", "b.weight"]
ONE_PASS = [BackwardBegan(), GradReady(0), BackwardEnded(), BucketReduced(0)]
UNUSED = re.escape(
    "the backward pass ended without a gradient for parameter 0 (a.weight), parameter 2 (b.weight); use "
    "every parameter in computing the loss, set requires_grad=False on those not used, or give "
    "find_unused_parameters=True\nthis pass so far:\n  BackwardBegan()\n  GradReady(parameter=1)"
)


@pytest.mark.parametrize(
    ("buckets", "before", "event", "message"),
    [
        ([[0]], [], GradReady(0), "cannot happen while the reducer is idle; expected one of BackwardBegan"),
        ([[0]], [], BackwardEnded(), "while the reducer is idle"),
        ([[0]], [BackwardBegan()], BackwardBegan(), "while the reducer is filling"),
        ([[0]], ONE_PASS[:3], GradReady(0), "while the reducer is draining"),
        ([[0]], [BackwardBegan()], GradReady(7), "there is no parameter 7"),
        ([[0]], [BackwardBegan()], BucketReduced(3), "there is no bucket 3, there are 1"),
        ([[0]], [BackwardBegan(), GradReady(0)], BucketReduced(-1), "there is no bucket -1"),
        ([[0]], [BackwardBegan()], BucketReduced(0), "bucket 0 cannot have been reduced: it is incomplete"),
        ([[0, 1], [2]], [BackwardBegan(), GradReady(1)], BackwardEnded(), f"^{UNUSED}$"),
        ([[*range(20)]], [BackwardBegan(), *map(GradReady, range(12))], GradReady(0),
         r"… 5 earlier events\n  GradReady\(parameter=4\)"),
        ([[0]], [*ONE_PASS, BackwardBegan()], BackwardEnded(), r"this pass so far:\n  BackwardBegan\(\)$"),
    ],
)  # fmt: skip
def test_an_event_that_cannot_happen_now_is_refused_with_what_has_happened(buckets, before, event, message):
    names = NAMES_OF_THREE if buckets == [[0, 1], [2]] else None
    reducer = Reducer(Plan.of_whole_buffers(buckets), WAIT_FREE, names)
    feed(reducer, *before)

    with pytest.raises(ReducerError, match=message):
        reducer.handle(event)


class Hasty(Strategy):
    kind = "hasty"

    def choose(self, situation: Situation) -> int:
        return len(situation.ready) + 1


class Never(Strategy):
    kind = "never"

    def choose(self, situation: Situation) -> int:
        return 0


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (Hasty(), r"hasty chose to launch 2 of the next planned; ready are 1: buckets \[0\]"),
        (Never(), r"never left buckets \[0, 1\] behind"),
    ],
)
def test_a_strategy_that_breaks_the_rules_is_named(strategy, message):
    reducer = Reducer(Plan.of_whole_buffers([[0], [1]]), strategy)

    with pytest.raises(ReducerError, match=message):
        feed(reducer, BackwardBegan(), GradReady(0), GradReady(1), BackwardEnded())


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan.of_whole_buffers([[0], []]), "at least one parameter"),
        (Plan.of_whole_buffers([[0], [0]]), "one buffer only"),
        (Plan(((0, 1),), (Bucket((0,), 0),), (PlannedLaunch(0),)), "every parameter must be in a bucket"),
        (Plan(((0,),), (Bucket((0,), 0),), ()), "every bucket must be launched"),
        (Plan(((0,),), (Bucket((0,), 0),), (PlannedLaunch(1),)), "every bucket must be launched"),
    ],
)
def test_plans_that_do_not_hold_together_are_refused(plan, message):
    with pytest.raises(ReducerError, match=message):
        Reducer(plan, WAIT_FREE)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wait-free", "did you mean 'wait_free'"),
        ("wait_free:k=2", "wait_free has no parameter 'k=2'; it has none"),
        ("priority:credit=2", "did you mean 'credits'"),
        ("priority:credits=0", "credits must be a whole number from 1, got 0"),
        ("priority:partition_mb=nan", "partition_mb must be at least 16 bytes in MiB, got 'nan'"),
        ("accumulate:k=1.5", "k must be a whole number from 1, got 1.5"),
        ("accumulate:last=dear", "last must be one of after_backward, .* got 'dear'"),
        ("zero1:prefetch=2", "prefetch must be True or False, got 2"),
        ("fsdp:prefetch=-1", "prefetch must be a number from 0"),
        ("fsdp:reshard=2", "reshard must be True or False"),
        ("fsdp:gathered_bits=12", "gathered_bits must be 8, 16, 32 or 64"),
    ],
)
def test_a_strategy_that_does_not_exist_is_refused_with_the_nearest_name(name, message):
    with pytest.raises(UnknownStrategyError, match=message):
        resolve_strategy(name)
