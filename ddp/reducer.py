"""The reducer: when which gradients are reduced, as a state machine.  Open this file first.

It holds no tensor, does no I/O, reads no clock and knows no framework.  A driver tells it what
has happened (an *event*) and carries out what it answers (*commands*):

    event                       answered by
    BackwardBegan               nothing
    GradReady(parameter)        LaunchBucket …   what the strategy lets go
    BackwardEnded               LaunchBucket …, AwaitBucket … by index; FinishBackward if none is in flight
    BucketReduced(bucket)       FinishBackward   when it was the last, and the backward pass has ended
    ParameterNeeded(parameter)  AwaitBucket      if its gradient is still on the way after the pass

`ddp.drivers.torch` feeds it from autograd hooks and launches real collectives;
`ddp.drivers.simulated` replays a recorded backward pass in virtual time.  What was simulated is
therefore what runs.

The reducer goes through three phases, and in each pass every bucket through four states:

    idle ──BackwardBegan──▶ filling ──BackwardEnded──▶ draining ──last BucketReduced──▶ idle
    incomplete ──last GradReady──▶ complete ──LaunchBucket──▶ in flight ──BucketReduced──▶ reduced

*When* a complete bucket is launched is the strategy's choice (`ddp.overlap`).  What must hold for
every strategy is checked here:

1. Every gradient becomes ready exactly once in a pass.
2. A bucket is launched once, after its last gradient, and after all buckets before it: the order
   of launches is the same on every rank, whatever the order in which gradients became ready.
3. Only a bucket in flight can have been reduced.
4. The pass finishes once, when every bucket has been reduced.

What breaks a rule is refused with a `ReducerError` that tells the history of the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile
from typing import ClassVar, TypeAlias

from ddp.errors import ReducerError
from ddp.overlap import Strategy, WaitingBucket


@dataclass(frozen=True, slots=True)
class BackwardBegan:
    """A backward pass whose gradients shall be reduced has begun."""


@dataclass(frozen=True, slots=True)
class GradReady:
    """The gradient of a parameter has its final local value."""

    parameter: int


@dataclass(frozen=True, slots=True)
class BackwardEnded:
    """No further gradient will become ready in this pass."""


@dataclass(frozen=True, slots=True)
class BucketReduced:
    """The collective of a bucket has completed."""

    bucket: int


@dataclass(frozen=True, slots=True)
class ParameterNeeded:
    """The next forward pass is about to use a parameter."""

    parameter: int


@dataclass(frozen=True, slots=True)
class LaunchBucket:
    """Start a collective on a bucket and go on; report `BucketReduced` when it is done."""

    bucket: int
    collective: str = "all_reduce"


@dataclass(frozen=True, slots=True)
class AwaitBucket:
    """Do not go on before this bucket has been reduced."""

    bucket: int


@dataclass(frozen=True, slots=True)
class FinishBackward:
    """Every gradient is reduced: hand them to the optimizer."""


Event: TypeAlias = BackwardBegan | GradReady | BackwardEnded | BucketReduced | ParameterNeeded
Command: TypeAlias = LaunchBucket | AwaitBucket | FinishBackward


class Phase(Enum):
    """Where the reducer is in a pass."""

    IDLE = "idle"
    FILLING = "filling"
    DRAINING = "draining"


class _State(Enum):
    INCOMPLETE = "incomplete"
    COMPLETE = "complete"
    IN_FLIGHT = "in flight"
    REDUCED = "reduced"


@dataclass(slots=True)
class _Bucket:
    index: int
    parameters: tuple[int, ...]
    missing: set[int] = field(default_factory=set)
    state: _State = _State.INCOMPLETE

    @property
    def waiting(self) -> bool:
        return self.state in (_State.INCOMPLETE, _State.COMPLETE)

    def empty(self) -> None:
        self.missing = set(self.parameters)
        self.state = _State.INCOMPLETE


class Reducer:
    """Decides when the buckets of one module are reduced; see the module's docstring.

    Args:
        buckets: for each bucket the indices of its parameters; each parameter is in one bucket.
        strategy: lets complete buckets go.
        names: the parameters' names, for errors.

    Raises:
        ReducerError: a bucket is empty, or a parameter is in two buckets.
    """

    def __init__(
        self, buckets: Sequence[Sequence[int]], strategy: Strategy, names: Sequence[str] | None = None
    ) -> None:
        self._buckets = [_Bucket(index, tuple(parameters)) for index, parameters in enumerate(buckets)]
        self._bucket_of = {parameter: b for b in self._buckets for parameter in b.parameters}
        self._strategy = strategy
        self._names = names
        self._phase = Phase.IDLE
        self._history: list[Event] = []
        if not all(bucket.parameters for bucket in self._buckets):
            raise ReducerError("every bucket must hold at least one parameter")
        if len(self._bucket_of) < sum(len(bucket.parameters) for bucket in self._buckets):
            raise ReducerError("a parameter must be in one bucket only, once")

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
        self._phase = Phase.FILLING
        yield from ()

    def _fill(self, event: GradReady) -> Iterator[Command]:
        bucket = self._find_bucket_of(event.parameter)
        if event.parameter not in bucket.missing:
            raise self._refusal(
                f"{self._label(event.parameter)} (bucket {bucket.index}) became ready twice in one backward "
                "pass; wrap all but the last backward in no_sync(), or use each parameter in one "
                "re-entrant checkpoint only"
            )
        bucket.missing.remove(event.parameter)
        if not bucket.missing:
            bucket.state = _State.COMPLETE
            yield from self._launch(backward_ended=False)

    def _end(self, event: BackwardEnded) -> Iterator[Command]:
        unused = sorted(parameter for bucket in self._buckets for parameter in bucket.missing)
        if unused:
            raise self._refusal(
                f"the backward pass ended without a gradient for {', '.join(map(self._label, unused))}; use "
                "every parameter in computing the loss, or set requires_grad=False on those not used"
            )
        yield from self._launch(backward_ended=True)
        left = [bucket.index for bucket in self._buckets if bucket.waiting]
        if left:
            raise self._refusal(
                f"strategy {self._strategy.name} left buckets {left} behind at the end of the backward pass; "
                "it must launch all of them"
            )
        self._phase = Phase.DRAINING
        for bucket in self._buckets:
            if bucket.state is _State.IN_FLIGHT:
                yield AwaitBucket(bucket.index)
        yield from self._finish_if_all_reduced()

    def _note_reduced(self, event: BucketReduced) -> Iterator[Command]:
        if not 0 <= event.bucket < len(self._buckets):
            raise self._refusal(f"there is no bucket {event.bucket}, there are {len(self._buckets)}")
        bucket = self._buckets[event.bucket]
        if bucket.state is not _State.IN_FLIGHT:
            raise self._refusal(
                f"bucket {bucket.index} cannot have been reduced: it is {bucket.state.value}, not in flight"
            )
        bucket.state = _State.REDUCED
        if self._phase is Phase.DRAINING:
            yield from self._finish_if_all_reduced()

    def _await_needed(self, event: ParameterNeeded) -> Iterator[Command]:
        bucket = self._find_bucket_of(event.parameter)
        if bucket.state is _State.IN_FLIGHT:
            yield AwaitBucket(bucket.index)

    def _need_nothing(self, event: ParameterNeeded) -> Iterator[Command]:
        """Wait for nothing: outside of draining no gradient is owed to the next forward pass."""
        self._find_bucket_of(event.parameter)
        yield from ()

    def _launch(self, backward_ended: bool) -> Iterator[Command]:
        """Launch what the strategy chooses, if it may."""
        waiting = [bucket for bucket in self._buckets if bucket.waiting]
        view = [WaitingBucket(bucket.index, bucket.state is _State.COMPLETE) for bucket in waiting]
        chosen = list(self._strategy.choose(view, backward_ended))
        launchable = [bucket.index for bucket in takewhile(lambda b: b.state is _State.COMPLETE, waiting)]
        if chosen != launchable[: len(chosen)]:
            raise self._refusal(
                f"strategy {self._strategy.name} chose to launch buckets {chosen}; only complete buckets may "
                f"go, in index order: {launchable or 'none'} at this point"
            )
        for bucket in waiting[: len(chosen)]:
            bucket.state = _State.IN_FLIGHT
            yield LaunchBucket(bucket.index)

    def _finish_if_all_reduced(self) -> Iterator[Command]:
        if all(bucket.state is _State.REDUCED for bucket in self._buckets):
            self._phase = Phase.IDLE
            yield FinishBackward()

    _TRANSITIONS: ClassVar[Mapping[tuple[Phase, type[Event]], Callable[..., Iterator[Command]]]] = {
        (Phase.IDLE, BackwardBegan): _begin,
        (Phase.IDLE, ParameterNeeded): _need_nothing,
        (Phase.FILLING, GradReady): _fill,
        (Phase.FILLING, BackwardEnded): _end,
        (Phase.FILLING, BucketReduced): _note_reduced,
        (Phase.FILLING, ParameterNeeded): _need_nothing,
        (Phase.DRAINING, BucketReduced): _note_reduced,
        (Phase.DRAINING, ParameterNeeded): _await_needed,
    }

    def _find_bucket_of(self, parameter: int) -> _Bucket:
        if parameter not in self._bucket_of:
            raise self._refusal(f"there is no parameter {parameter} in any bucket")
        return self._bucket_of[parameter]

    def _label(self, parameter: int) -> str:
        return f"parameter {parameter}" + (f" ({self._names[parameter]})" if self._names else "")

    def _refusal(self, problem: str) -> ReducerError:
        recent = 8
        earlier = len(self._history) - recent
        story = [f"  … {earlier} earlier events"] if earlier > 0 else []
        story += [f"  {event}" for event in self._history[-recent:]]
        return ReducerError("\n".join([problem, *(["this pass so far:", *story] if story else [])]))
