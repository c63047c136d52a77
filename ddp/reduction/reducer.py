"""The reducer: when which gradients are reduced, as a state machine.  Open this file first.

It holds no tensor, does no I/O, reads no clock and knows no framework.  A driver tells it what
has happened (an *event*) and carries out what it answers (*commands*; `ddp.reduction.events`):

    event                       answered by
    BackwardBegan               nothing
    GradReady(parameter)        LaunchBucket …   what the strategy lets go
    BucketFilled(bucket)        the same, for all gradients of a bucket at once
    BackwardEnded               LaunchBucket …; AwaitBucket … if the strategy waits here
    OptimizerStepped            UpdateBucket …, LaunchBucket …; AwaitBucket … if the strategy waits here
    BucketReduced(bucket)       UpdateBucket, LaunchBucket …
    ParameterNeeded(parameter)  AwaitBucket …    until that parameter is up to date
    EverythingNeeded            AwaitBucket …    until all are
    the last of a pass          FinishBackward   when every bucket has arrived, and nobody owes a step

`ddp.autograd.driver` feeds it from autograd hooks and launches real collectives;
`ddp.step.simulated_step` replays a recorded backward pass in virtual time.  What was simulated is
therefore what runs.

The reducer goes through these phases in a pass:

    idle ──BackwardBegan──▶ filling ──BackwardEnded──▶ draining ──last bucket has arrived──▶ idle

and if the strategy updates parameters, between filling and draining:

    filling ──BackwardEnded──▶ holding ──OptimizerStepped──▶ draining

A bucket goes through the collectives of its journey, mostly one (`ddp.reduction.strategies.plan`).  The
parameters of a bucket are updated after the collective that the strategy names, and not before the
optimizer's step.

The plan fixes the order of all launches.  *When* the next ones go is the strategy's choice
(`ddp.reduction.strategies.strategy`).  What must hold for every strategy is checked here:

1. Every gradient becomes ready exactly once in a pass.
2. Launches go in the order of the plan, each once: the same on every rank, whatever the order in which
   gradients became ready.
3. A bucket is launched after its last gradient, and for a further collective after the one before it, and
   after its update, if that comes between them.
4. Only a bucket in flight can have been reduced.
5. The pass finishes once, when every bucket has gone through its journey.

What breaks a rule is refused with a `ReducerError` that tells the history of the pass.

Waiting never deadlocks: awaits are listed in the order of launches, so when one is carried out, all
before it have completed, and the strategy has had to launch it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from ddp.errors import ReducerError, UnfinishedReductionError
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
from ddp.reduction.strategies.plan import Plan
from ddp.reduction.strategies.strategy import Barrier, Situation, Strategy


class Phase(Enum):
    """Where the reducer is in a pass."""

    IDLE = "idle"
    FILLING = "filling"
    HOLDING = "holding"
    DRAINING = "draining"

    __hash__ = object.__hash__  # that of enum is written in Python, and asked for with every gradient


@dataclass(slots=True)
class _Bucket:
    index: int
    parameters: tuple[int, ...]
    alone: bool = True
    journey: list[str] = field(default_factory=list)
    missing: set[int] = field(default_factory=set)
    num_done: int = 0
    in_flight: bool = False
    updated: bool = False

    def empty(self) -> None:
        self.missing = set(self.parameters)
        self.num_done, self.in_flight, self.updated = 0, False, False

    def state(self) -> str:
        if self.missing:
            return "incomplete"
        return self.journey[self.num_done - 1] + " is done" if self.num_done else "complete"


class Reducer:
    """Decides when the buckets of one module are reduced; see the module's docstring.

    Args:
        plan: which buckets there are, and in which order they are launched.
        strategy: lets them go.
        names: the parameters' names, for errors.

    Raises:
        ReducerError: the plan does not hold together.
    """

    def __init__(self, plan: Plan, strategy: Strategy, names: Sequence[str] | None = None) -> None:
        self._launches = plan.launches
        self._strategy = strategy
        self._names = names
        self._phase = Phase.IDLE
        self._history: list[Event] = []
        plan.check()
        self._buckets = [_Bucket(index, bucket.parameters) for index, bucket in enumerate(plan.buckets)]
        self._buckets_of: dict[int, list[_Bucket]] = {}
        for bucket in self._buckets:
            for parameter in bucket.parameters:
                self._buckets_of.setdefault(parameter, []).append(bucket)
        for sharing in self._buckets_of.values():
            for bucket in sharing:
                bucket.alone = bucket.alone and len(sharing) == 1
        self._stages: list[int] = []
        self._last_launch: dict[int, int] = {}
        for place, launch in enumerate(plan.launches):
            journey = self._buckets[launch.bucket].journey
            self._stages.append(len(journey))
            journey.append(launch.collective)
            self._last_launch[launch.bucket] = place
        self._num_launched = self._num_ready = self._num_done = 0

    @property
    def phase(self) -> Phase:
        """Where the reducer is in a pass."""
        return self._phase

    def handle(self, event: Event) -> tuple[Command, ...]:
        """Take note of *event* and return what is to be done now, in this order.

        Raises:
            ReducerError: the event cannot happen now; the message names what was expected.
        """
        transition = self._TRANSITIONS.get((self._phase, type(event)))
        if transition is None:
            accepted = [kind.__name__ for phase, kind in self._TRANSITIONS if phase is self._phase]
            raise self._refusal(
                f"{event} cannot happen while the reducer is {self._phase.value}; "
                f"expected one of {', '.join(accepted)}"
            )
        commands = tuple(transition(self, event))
        self._history.append(event)
        return commands

    def _begin(self, event: BackwardBegan) -> Iterator[Command]:
        self._history.clear()
        for bucket in self._buckets:
            bucket.empty()
        self._num_launched = self._num_ready = self._num_done = 0
        self._phase = Phase.FILLING
        yield from ()

    def _fill(self, event: GradReady) -> Iterator[Command]:
        for bucket in self._find_buckets_of(event.parameter):
            if event.parameter not in bucket.missing:
                raise self._came_twice(event.parameter, bucket)
            bucket.missing.remove(event.parameter)
        yield from self._launch()

    def _fill_bucket(self, event: BucketFilled) -> Iterator[Command]:
        bucket = self._find_bucket(event.bucket)
        if not bucket.alone:
            raise self._refusal(f"bucket {bucket.index} shares gradients with others; tell each (GradReady)")
        for parameter in bucket.parameters if len(bucket.missing) < len(bucket.parameters) else ():
            if parameter not in bucket.missing:
                raise self._came_twice(parameter, bucket)
        bucket.missing.clear()
        yield from self._launch()

    def _end(self, event: BackwardEnded) -> Iterator[Command]:
        unused = sorted({parameter for bucket in self._buckets for parameter in bucket.missing})
        if unused:
            refusal = self._refusal(
                f"the backward pass ended without a gradient for {', '.join(map(self._label, unused))}; use "
                "every parameter in computing the loss, set requires_grad=False on those not used, or give "
                "find_unused_parameters=True"
            )
            raise UnfinishedReductionError(str(refusal), unused)
        waits_here = self._strategy.barrier is Barrier.BACKWARD_END
        self._phase = Phase.DRAINING if waits_here else Phase.HOLDING
        yield from self._launch()
        if waits_here:
            yield from self._await_launches(len(self._launches))
            yield from self._finish_if_all_done()

    def _step(self, event: OptimizerStepped) -> Iterator[Command]:
        self._phase = Phase.DRAINING
        for bucket in self._buckets:
            yield from self._update_if_due(bucket)
        yield from self._launch()
        if self._strategy.barrier is Barrier.STEP:
            yield from self._await_launches(len(self._launches))
        yield from self._finish_if_all_done()

    def _note_reduced(self, event: BucketReduced) -> Iterator[Command]:
        bucket = self._find_bucket(event.bucket)
        if not bucket.in_flight:
            raise self._refusal(
                f"bucket {bucket.index} cannot have been reduced: it is {bucket.state()}, not in flight"
            )
        bucket.in_flight = False
        bucket.num_done += 1
        self._num_done += 1
        if self._phase is Phase.DRAINING:
            yield from self._update_if_due(bucket)
        yield from self._launch()
        if self._phase is Phase.DRAINING:
            yield from self._finish_if_all_done()

    def _await_needed(self, event: ParameterNeeded) -> Iterator[Command]:
        needed = self._find_buckets_of(event.parameter)
        yield from self._await_launches(1 + max(self._last_launch[bucket.index] for bucket in needed))

    def _await_everything(self, event: EverythingNeeded) -> Iterator[Command]:
        yield from self._await_launches(len(self._launches))

    def _need_nothing(self, event: ParameterNeeded | EverythingNeeded) -> Iterator[Command]:
        """Wait for nothing: outside of draining no update is owed to the next forward pass."""
        if isinstance(event, ParameterNeeded):
            self._find_buckets_of(event.parameter)
        yield from ()

    def _launch(self) -> Iterator[Command]:
        """Launch what the strategy chooses, if it may."""
        while self._num_ready < len(self._launches) and self._is_ready(self._num_ready):
            self._num_ready += 1
        ready = self._launches[self._num_launched : self._num_ready]
        if not ready:
            return
        in_flight = self._num_launched - self._num_done
        backward_ended = self._phase is not Phase.FILLING
        count = self._strategy.choose(Situation(ready, in_flight, backward_ended))
        if not 0 <= count <= len(ready):
            raise self._refusal(
                f"strategy {self._strategy.name} chose to launch {count} of the next planned; ready are "
                f"{len(ready)}: buckets {[launch.bucket for launch in ready]}"
            )
        if backward_ended and not count and not in_flight:
            raise self._refusal(
                f"strategy {self._strategy.name} left buckets {[launch.bucket for launch in ready]} behind: "
                "after the backward pass it must launch as long as nothing is in flight"
            )
        self._num_launched += count
        for launch in ready[:count]:
            self._buckets[launch.bucket].in_flight = True
            yield LaunchBucket(launch.bucket, launch.collective)

    def _is_ready(self, place: int) -> bool:
        """Return whether nothing but its turn keeps a launch from going; it stays so."""
        bucket, stage = self._buckets[self._launches[place].bucket], self._stages[place]
        if bucket.missing or bucket.num_done != stage:
            return False
        return bucket.updated or self._strategy.update_after not in bucket.journey[:stage]

    def _update_if_due(self, bucket: _Bucket) -> Iterator[Command]:
        after = self._strategy.update_after
        if after in bucket.journey[: bucket.num_done] and not bucket.updated:
            bucket.updated = True
            yield UpdateBucket(bucket.index)

    def _await_launches(self, end: int) -> Iterator[Command]:
        """Await the launches before place *end* that are not done, in order."""
        for place in range(end):
            bucket = self._buckets[self._launches[place].bucket]
            if bucket.num_done <= self._stages[place]:
                yield AwaitBucket(bucket.index)

    def _finish_if_all_done(self) -> Iterator[Command]:
        if self._num_done == len(self._launches):
            self._phase = Phase.IDLE
            yield FinishBackward()

    _TRANSITIONS: ClassVar[Mapping[tuple[Phase, type[Event]], Callable[..., Iterator[Command]]]] = {
        (Phase.IDLE, BackwardBegan): _begin,
        (Phase.IDLE, ParameterNeeded): _need_nothing,
        (Phase.IDLE, EverythingNeeded): _need_nothing,
        (Phase.FILLING, GradReady): _fill,
        (Phase.FILLING, BucketFilled): _fill_bucket,
        (Phase.FILLING, BackwardEnded): _end,
        (Phase.FILLING, BucketReduced): _note_reduced,
        (Phase.FILLING, ParameterNeeded): _need_nothing,
        (Phase.FILLING, EverythingNeeded): _need_nothing,
        (Phase.HOLDING, OptimizerStepped): _step,
        (Phase.HOLDING, BucketReduced): _note_reduced,
        (Phase.HOLDING, ParameterNeeded): _need_nothing,
        (Phase.HOLDING, EverythingNeeded): _need_nothing,
        (Phase.DRAINING, BucketReduced): _note_reduced,
        (Phase.DRAINING, ParameterNeeded): _await_needed,
        (Phase.DRAINING, EverythingNeeded): _await_everything,
    }

    def _find_bucket(self, number: int) -> _Bucket:
        if not 0 <= number < len(self._buckets):
            raise self._refusal(f"there is no bucket {number}, there are {len(self._buckets)}")
        return self._buckets[number]

    def _find_buckets_of(self, parameter: int) -> list[_Bucket]:
        if parameter not in self._buckets_of:
            raise self._refusal(f"there is no parameter {parameter} in any bucket")
        return self._buckets_of[parameter]

    def _came_twice(self, parameter: int, bucket: _Bucket) -> ReducerError:
        return self._refusal(
            f"{self._label(parameter)} (bucket {bucket.index}) became ready twice in one backward pass; wrap "
            "all but the last backward in no_sync(), or use each parameter in one re-entrant checkpoint only"
        )

    def _label(self, parameter: int) -> str:
        return f"parameter {parameter}" + (f" ({self._names[parameter]})" if self._names else "")

    def _refusal(self, problem: str) -> ReducerError:
        recent = 8
        earlier = len(self._history) - recent
        story = [f"  … {earlier} earlier events"] if earlier > 0 else []
        story += [f"  {event}" for event in self._history[-recent:]]
        return ReducerError("\n".join([problem, *(["this pass so far:", *story] if story else [])]))
