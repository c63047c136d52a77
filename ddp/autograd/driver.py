"""Trains with the reducer: autograd on one side, a communicator on the other.

    autograd (`passes`)                                 reducer
    the first parameter's gradient is accumulated   →   BackwardBegan, GradReady
    another parameter's gradient is accumulated     →   GradReady
    the engine's final callback                     →   BackwardEnded
    a work has completed                            →   BucketReduced

    reducer                                             communicator (`carrier`)
    LaunchBucket                                    →   all_reduce(async_op=True)
    AwaitBucket                                     →   wait
    FinishBackward                                  →   gradients go back to the parameters

Buckets are planned here too: one per dtype and device in the first pass, and from then on by the
order in which gradients became ready.  Which gradients count as ready, where not all are used, is
the affair of `ddp.autograd.unused`; what else is done with a bucket, that of `ddp.buckets.comm_hooks` and its
kin.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

import torch
from torch.nn import Parameter

from collectives.communicators.communicator import Communicator
from collectives.execution.work import Work
from ddp.autograd import in_backward
from ddp.autograd.agreement import agree_on_order, agree_on_timing
from ddp.autograd.backward_pass import Passes
from ddp.autograd.checks import GradientChecks
from ddp.autograd.hook_groups import Watch
from ddp.autograd.in_flight import Carrier
from ddp.autograd.logging_data import IterationTimes, joined
from ddp.autograd.options import NO_LIMIT, ReductionOptions
from ddp.autograd.ready_gradients import Filling
from ddp.autograd.timeline import SpanRecorder, Timeline
from ddp.autograd.unused import NothingToDo, Readiness
from ddp.buckets.comm_hooks import CommHook
from ddp.buckets.flat_bucket import FlatBucket
from ddp.buckets.sparse import SparseBucket
from ddp.reduction.events import (
    AwaitBucket,
    BackwardBegan,
    BackwardEnded,
    BucketReduced,
    Command,
    Event,
    FinishBackward,
    LaunchBucket,
    UpdateBucket,
)
from ddp.reduction.reducer import Phase, Reducer
from ddp.reduction.strategies.plan import Layout, Plan, Timing
from ddp.reduction.timings import BucketRun, bucket_table

LOGGER = logging.getLogger("ddp")


class TorchDriver:
    """Reduces the gradients of *parameters* during backward passes.

    Args:
        parameters: by name, in the order of registration.
        communicator: carries the buckets.
        options: see `ReductionOptions`.
        readiness: when gradients are ready, if not all parameters are used once in each pass.
        checks: are shown the gradients before and after.
        recorder: is told compute and communication spans, in the communicator's time.

    Attributes:
        divisor: by which sums are divided: the number of ranks that compute gradients.
        comm_hook: what is done with buckets instead of averaging them.
        finished: called when a pass has finished.
    """

    def __init__(
        self,
        parameters: dict[str, Parameter],
        communicator: Communicator,
        options: ReductionOptions,
        readiness: Readiness | None = None,
        checks: GradientChecks | None = None,
        recorder: SpanRecorder | None = None,
    ) -> None:
        self.divisor = communicator.world_size
        self.comm_hook: CommHook | None = None
        self._names = list(parameters)
        self._parameters = list(parameters.values())
        self._communicator = communicator
        self._options = options
        self._readiness = readiness
        self._checks = checks
        self._forward_began_ps = self._step_began_ps = 0
        self._local_passes = options.strategy.num_passes - 1
        self._reached = self._shadowing = self._backward_ended = self._some_come_early = False
        self.has_rebuilt = False
        self._owed: set[int] = set()
        self._owners: frozenset[int] = frozenset()
        self.finished: Callable[[], None] = lambda: None
        self._timeline = Timeline(communicator, recorder)
        self._filling = Filling(self._timeline)
        self.times = IterationTimes(self._timeline.now_ps)
        self._carrier = Carrier(communicator, self._timeline)
        self._build(options.first_limits, order=None)
        self.first_sizes = joined(self.bucket_nbytes)
        self.passes = Passes(parameters, self, self._timeline)
        self._watch = Watch(self._parameters, self.passes)

    @property
    def bucket_nbytes(self) -> list[int]:
        """Size of each bucket in bytes."""
        return [bucket.nbytes for bucket in self._flat]

    @property
    def assignment(self) -> list[list[int]]:
        """The indices of the parameters of each bucket."""
        return self._assignment

    @property
    def ready_order(self) -> list[int]:
        """The order in which gradients became ready in the latest pass."""
        return self._filling.order

    @property
    def parameters(self) -> Sequence[Parameter]:
        """The parameters whose gradients are reduced."""
        return self._parameters

    @property
    def cap_bytes(self) -> int:
        """Size at which most buckets are closed."""
        return self._options.limits[-1]

    @property
    def as_view(self) -> bool:
        """Whether gradients are views of buckets."""
        return self._options.as_view

    @property
    def _unused(self) -> frozenset[int]:
        return frozenset() if self._readiness is None else self._readiness.surely_unused

    def unused(self) -> Sequence[Parameter]:
        """Return the parameters known to be unused on this rank."""
        return [self._parameters[index] for index in sorted(self._unused)]

    def step_in_backward(self) -> None:
        """Run optimizers that belong to single parameters as soon as these are reduced."""
        self._owners = in_backward.take_over(self._parameters)

    def forward_begins(self) -> None:
        """Take note of a forward pass; with gradients enabled, re-bucket if it is time."""
        if self.passes.forward_begins():
            self.rebuild_if_due()
        self.times.begin()
        self._timeline.resume()
        self._forward_began_ps = self._timeline.latest_ps

    def forward_ended(self, outputs: Sequence[torch.Tensor] | None) -> None:
        """Take note of the end; see `Passes.forward_ended`."""
        if self._readiness is not None and outputs is not None:
            self._readiness.forward_ended(outputs)
        self.passes.forward_ended(outputs)

    def shadow(self) -> None:
        """Take part in a pass of the other ranks, with gradients of zero."""
        self._shadowing = True
        try:
            self._begin()
            for index in range(len(self._parameters)):
                bucket, position = self._place[index]
                self._flat[bucket].take_nothing(position)
                self._tell(self._filling.note(index))
            self._end()
        finally:
            self._shadowing = False

    def rebuild_if_due(self) -> None:
        """Bucket anew in the order of gradients on rank 0, once that is known."""
        order_is_known = len(self.ready_order) == len(self._parameters)
        due = self._options.rebuilds and not self.has_rebuilt and order_is_known
        if due and torch.is_grad_enabled() and self._parameters:
            device = self._parameters[0].device
            order = agree_on_order(self._communicator, self.ready_order, device)
            timing = None
            if self._options.strategy.needs_timing:
                timing = agree_on_timing(self._communicator, self._filling.ready_ps, device)
            self.has_rebuilt = True
            self._build(self._options.limits, order, timing)
            for bucket in self._flat:
                bucket.adopt()
            self._watch_few()

    def _watch_few(self) -> None:
        """Watch few gradients from now on, if nobody has to hear of each when it comes."""
        nobody_asks = self._readiness is None and self._checks is None and not self._filling.tells_each
        versions_tell = not self._options.as_view and not self._some_come_early
        if nobody_asks and versions_tell and self._communicator.moves_by_itself:
            self._watch.few(self._assignment, self.ready_order, [flat.waits for flat in self._flat])

    def outputs_hidden(self) -> None:
        """Watch every gradient: nothing else will tell when the backward pass begins."""
        self._watch.all()

    def backward_began(self) -> None:
        """Take the time."""
        self.times.first("backward_began")
        self._watch.begin()

    def gradient_ready(self, index: int) -> None:
        """Take what is ready, and advance what is in flight, unless the pass only adds up."""
        self._reached = True
        if not self._local_passes:
            if self._readiness is None:
                self._take_all(self._watch.come_with(index))
            else:
                self._take_all(self._readiness.accumulated(index))

    def _take_all(self, ready: Iterable[int]) -> None:
        if self._reducer.phase is Phase.IDLE:
            self._begin()
        told = bool(sum(map(self._take, ready)))
        if (told or not self._communicator.moves_by_itself) and self._carrier.busy:
            for reduced in self._carrier.poll():
                self._reduced(reduced)

    def gradient_kept(self, index: int) -> None:
        """Take note of a gradient that is not reduced."""
        if self._readiness is not None:
            self._readiness.kept(index)

    def gradient_early(self, index: int) -> None:
        """Take a gradient after all; from now on watch all, as sentinels look at what comes later."""
        if self._readiness is None:
            self._some_come_early = True
            self._watch.all()
            self.gradient_ready(index)

    def backward_ended(self) -> None:
        """Tell the reducer, unless the pass reached no parameter."""
        unnoticed = self._watch.unnoticed()
        if unnoticed and not self._local_passes:
            self._take_all(unnoticed)
        if self._reached or unnoticed:
            self._local_passes = (self._local_passes or self._options.strategy.num_passes) - 1
        self._reached = False
        if self._reducer.phase is Phase.FILLING:
            if self._readiness is not None:
                self._take_all(self._readiness.pass_ended())
            for twice in self._watch.end():
                self._tell(self._filling.note(twice))
            self._end()

    def pass_abandoned(self) -> None:
        """Start anew, once the messages of the pass are out of the way."""
        self._carrier.settle()
        self._reached = False
        for flat in self._flat:
            flat.forget()
        if self._readiness is not None:
            self._readiness.reset()
        self._reducer = Reducer(self._plan, self._options.strategy, self._names)

    def bucket_runs(self) -> tuple[BucketRun, ...]:
        """Return what became of the buckets of the latest pass, as far as they have arrived."""
        members = [bucket.parameters for bucket in self._plan.buckets]
        complete_ps = [max((self._filling.ready_ps.get(i, 0) for i in own), default=0) for own in members]
        return tuple(own.run(complete_ps[own.bucket], self._step_began_ps) for own in self._carrier.landed)

    def _begin(self) -> None:
        self._filling.begin()
        self._carrier.landed.clear()
        self._step_began_ps = self._forward_began_ps
        self._owed = set(range(len(self._flat)))
        self._backward_ended = False
        self._feed(BackwardBegan())

    def _take(self, index: int) -> bool:
        """Copy the gradient into its bucket; return whether the reducer was told of it."""
        if self._checks is not None:
            self._checks.taken(index)
        bucket, position = self._place[index]
        self._flat[bucket].take(position, self.divisor if self.comm_hook is None else 1)
        return self._tell(self._filling.note(index))

    def _tell(self, events: Sequence[Event]) -> bool:
        """Tell the reducer; return whether there was anything."""
        for event in events:
            self.times.last("last_gradient")
            self._feed(event)
        return bool(events)

    def _end(self) -> None:
        """Tell the reducer; before it waits for what is in flight, hand back what has arrived."""
        self._tell(self._filling.end())
        self._backward_ended = True
        for landed in self._carrier.landed:
            self._hand_back(landed.bucket)
        self._feed(BackwardEnded())

    def _feed(self, event: Event) -> None:
        self._obey(self._reducer.handle(event))

    def _obey(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case LaunchBucket(bucket, collective):
                    self.times.first("first_launch")
                    self._launch(bucket, collective)
                case AwaitBucket(bucket):
                    self._carrier.wait(bucket)
                    self._reduced(bucket)
                case UpdateBucket(bucket):
                    self._update_bucket(bucket)
                case FinishBackward():
                    self._finish()

    def _launch(self, bucket: int, collective: str) -> None:
        self._carrier.launch(bucket, self._flat[bucket].nbytes, partial(self._start, bucket))

    def _update_bucket(self, bucket: int) -> None:
        raise AssertionError("gradients of whole buckets are for the user's optimizer")

    def _start(self, bucket: int) -> Work:
        if self._options.skips_unused and self._unused.issuperset(self._assignment[bucket]):
            return NothingToDo()
        if self.comm_hook is not None:
            is_last = bucket == len(self._flat) - 1
            return self.comm_hook.start(bucket, is_last, self._flat[bucket])
        return self._flat[bucket].start(self._communicator)

    def _reduced(self, bucket: int) -> None:
        self.times.last("last_reduced")
        if self._owners and self._readiness is None:
            self._step(bucket)
        if self._backward_ended:
            self._hand_back(bucket)
        self._feed(BucketReduced(bucket))

    def _hand_back(self, bucket: int) -> None:
        """Hand the gradients of a bucket back, once; if not all are used, those of all wait for the end."""
        if self._readiness is None and not self._shadowing and bucket in self._owed:
            self._owed.remove(bucket)
            self._flat[bucket].give_back(self._positions(bucket, self._owners) if self._owners else ())

    def _finish(self) -> None:
        """Hand back what has not been, but for gradients that no rank has used."""
        for bucket in sorted(self._owed):
            self._hand_back(bucket)
        if self._readiness is not None:
            device = self._parameters[0].device
            untouched = set(self._readiness.unused_everywhere(self._communicator, device))
            self._readiness.reset()
            if not self._shadowing:
                for bucket, flat in enumerate(self._flat):
                    flat.give_back(self._positions(bucket, untouched) if untouched else ())
                in_backward.step([self._parameters[index] for index in self._owners - untouched])
        if self._checks is not None:
            self._checks.reduced(self._communicator)
        self._pass_is_over()

    def _pass_is_over(self) -> None:
        self.finished()
        if self._communicator.rank == 0 and LOGGER.isEnabledFor(logging.DEBUG):
            LOGGER.debug("what became of the buckets, times in us:\n%s", bucket_table(self.bucket_runs()))

    def _step(self, bucket: int) -> None:
        """Run the optimizers of the parameters in *bucket* that have any."""
        others = self._positions(bucket, set(self._assignment[bucket]) - self._owners)
        self._flat[bucket].give_back(others)
        in_backward.step([self._parameters[i] for i in self._assignment[bucket] if i in self._owners])

    def _positions(self, bucket: int, indices: Collection[int]) -> Collection[int]:
        return {position for position, index in enumerate(self._assignment[bucket]) if index in indices}

    def _build(
        self, limits: Sequence[int], order: Sequence[int] | None, timing: Timing | None = None
    ) -> None:
        sparse = self._options.sparse
        members = list(enumerate(self._parameters))
        layout = Layout(
            [NO_LIMIT if i in sparse else p.numel() * p.element_size() for i, p in members],
            [(p.dtype, p.device, i if i in sparse else None) for i, p in members],
            limits,
            order,
            timing,
        )
        self._plan = self._options.strategy.plan(layout)
        if order is None:
            self._plan = Plan.of_whole_buffers(self._plan.buffers[::-1])
        self._assignment = [list(buffer) for buffer in self._plan.buffers]
        self._flat = [self._memory_of(bucket) for bucket in self._assignment]
        self._place = {
            index: (number, position)
            for number, bucket in enumerate(self._assignment)
            for position, index in enumerate(bucket)
        }
        self._reducer = Reducer(self._plan, self._options.strategy, self._names)
        self._filling.follow(self._plan, self._options.strategy.needs_timing and not self.has_rebuilt)

    def _memory_of(self, bucket: Sequence[int]) -> FlatBucket | SparseBucket:
        parameters = [self._parameters[index] for index in bucket]
        names = [self._names[index] for index in bucket]
        if bucket[0] in self._options.sparse:
            return SparseBucket(parameters[0], names[0])
        return FlatBucket(parameters, names, self._options.as_view, self._options.batched)
