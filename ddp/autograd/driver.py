"""The driver of the reducer: autograd on one side, a communicator on the other.

    autograd (`backward_pass`, `ready_gradients`)       reducer
    the first parameter's gradient is accumulated   →   BackwardBegan, GradReady
    another parameter's gradient is accumulated     →   GradReady, or BucketFilled with a bucket's last
    the engine's final callback                     →   BackwardEnded
    a work has completed                            →   BucketReduced

    reducer                                             communicator (`in_flight`)
    LaunchBucket                                    →   all_reduce(async_op=True)
    AwaitBucket                                     →   wait
    UpdateBucket                                    →   the optimizer's step (`updates`)
    FinishBackward                                  →   gradients go back to parameters (`averaged_gradients`)

The driver holds these and wires them: a gradient goes from autograd's hook to the ready gradients, from there
to the reducer, and with its bucket to the buckets in flight.

Buckets are planned anew once: one per dtype and device in the first pass, and from then on by the
order in which gradients became ready.  Which gradients count as ready, where not all are used, is
the affair of `ddp.autograd.unused`; what else is done with a bucket, that of `ddp.buckets.comm_hooks` and its
kin.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import Parameter

from collectives.communicators.communicator import Communicator
from ddp.autograd.agreement import agree_on_order, agree_on_timing
from ddp.autograd.averaged_gradients import AveragedGradients
from ddp.autograd.backward_pass import BackwardPasses
from ddp.autograd.gradient_buckets import GradientBuckets
from ddp.autograd.hook_groups import GradientHooks
from ddp.autograd.in_flight import BucketsInFlight
from ddp.autograd.observation.checks import GradientChecks
from ddp.autograd.observation.iteration_times import IterationTimes
from ddp.autograd.observation.timeline import RankTimeline, SpanRecorder
from ddp.autograd.options import ReductionOptions
from ddp.autograd.ready_gradients import ReadyGradients
from ddp.autograd.unfinished import UNUSED, UnfinishedReductions
from ddp.autograd.unused import STATIC_GRAPH_LACKS, Readiness
from ddp.autograd.updates.updates import Updates, options_for_updates
from ddp.errors import GraphChangedError, UnfinishedReductionError
from ddp.reduction.events import (
    AwaitBucket,
    BackwardBegan,
    BackwardEnded,
    BucketReduced,
    Event,
    FinishBackward,
    LaunchBucket,
    UpdateBucket,
)
from ddp.reduction.reducer import Phase
from ddp.reduction.strategies.strategy import Strategy
from ddp.reduction.timings import BucketRun, bucket_table

LOGGER = logging.getLogger("ddp")


class TorchDriver:
    """Reduces the gradients of *parameters* during backward passes.

    Args:
        module: what is trained.
        parameters: by name, in the order of registration.
        communicator: carries the buckets; nothing else if the strategy updates parameters itself.
        options: see `ReductionOptions`.
        readiness: when gradients are ready, if not all parameters are used once in each pass.
        checks: are shown the gradients before and after.
        recorder: is told compute and communication spans, in the communicator's time.

    Attributes:
        has_rebuilt: whether buckets are those of the ready order.
        finished: called when a pass has finished.
        buckets: memory and places of gradients.
        in_flight: buckets between launch and completion.
        ready: takes gradients.
        passes: tells of them, and of backward passes.
        averaged: takes what has arrived, unless there are updates.
        updates: of strategies that update parameters themselves; None: the user's optimizer does.
        times: stamps for logging data.
        first_sizes: of the buckets of the first pass, in bytes.
        readiness: when gradients are ready, if not all parameters are used once in each pass.
        forward_began_ps: when the latest forward pass began.
        unfinished: keeps the error of a pass that has ended without some gradients.
        latest_error: the latest error, for logging data; None: there was none.

    Raises:
        NotSupportedError: an option asks for what the strategy does not have.
    """

    def __init__(
        self,
        module: nn.Module,
        parameters: dict[str, Parameter],
        communicator: Communicator,
        options: ReductionOptions,
        readiness: Readiness | None = None,
        checks: GradientChecks | None = None,
        recorder: SpanRecorder | None = None,
    ) -> None:
        updates_parameters = options.strategy.updates_parameters
        if updates_parameters:
            options = options_for_updates(options)
        self.options = options
        self.has_rebuilt = False
        self.finished: Callable[[], None] = lambda: None
        self._communicator = communicator
        self.readiness = readiness
        self.unfinished = UnfinishedReductions(parameters, communicator.rank)
        self.latest_error: Exception | None = None
        self._checks = checks
        self.forward_began_ps = 0

        self._timeline = timeline = RankTimeline(communicator, recorder)
        self.times = IterationTimes(timeline.now_ps)
        self.buckets = GradientBuckets(parameters, options, communicator)
        self.in_flight = BucketsInFlight(
            self.buckets, communicator, timeline, self.times, readiness if options.skips_unused else None
        )
        self.averaged = AveragedGradients(self.buckets, communicator, readiness)
        self.updates: Updates | None = None
        if updates_parameters:
            self.updates = Updates(module, parameters, self.buckets, communicator, options, timeline)

        self.passes = BackwardPasses(parameters, timeline)
        self._hooks = GradientHooks(self.buckets.parameters, self.passes.watch)
        self.ready = ReadyGradients(
            self.buckets,
            self.in_flight,
            self._hooks,
            communicator,
            timeline,
            self.times,
            readiness,
            checks,
            None if self.updates is None else self.updates.deferred,
            options.strategy.num_passes,
        )
        self.ready.follow(each=options.strategy.needs_timing)
        self._reducer = self.buckets.reducer()
        self.first_sizes = self.buckets.sizes

        reference = weakref.proxy(self)
        self.passes.report_to(reference, weakref.proxy(self.ready))
        self.ready.report_to(reference)
        if self.updates is not None:
            self.updates.report_to(reference)
            self.in_flight.on_completion = _advance_if_alive(weakref.ref(self))

    @property
    def phase(self) -> Phase:
        """Where the reducer is in a pass."""
        return self._reducer.phase

    def check_finished(self) -> None:
        """Check that the latest pass had all gradients, if gradients are about to be computed.

        Raises:
            UnfinishedReductionError: it had not.
        """
        if torch.is_grad_enabled() and self.unfinished.kept is not None:
            self.latest_error = self.unfinished.kept
            self.unfinished.check()

    def forward_begins(self) -> None:
        """Take note of a forward pass; with gradients enabled, re-bucket if it is time."""
        if self.phase is Phase.FILLING and not self.passes.under_way:
            self.pass_abandoned()
        with_optimizer = self.averaged.take_over_optimizers()
        if self.updates is not None:
            self.updates.check_optimizer(with_optimizer)
        if self.passes.forward_begins():
            self.rebuild_if_due()
        self.times.begin()
        self._timeline.resume()
        self.forward_began_ps = self._timeline.latest_ps
        if self.updates is not None:
            self.updates.forward_begins()

    def forward_ended(self, outputs: Sequence[torch.Tensor] | None) -> None:
        """Take note of the end; see `BackwardPasses.forward_ended`."""
        if self.updates is not None:
            self.updates.forward_ended()
        if self.readiness is not None and outputs is not None:
            self.readiness.forward_ended(outputs)
        if not self.passes.forward_ended(outputs):
            self._hooks.all()

    def shadow(self) -> None:
        """Take part in a pass of the other ranks, with gradients of zero."""
        self.begin(shadowing=True)
        self.ready.take_nothing()
        self._end()

    def rebuild_if_due(self) -> None:
        """Bucket anew in the order of gradients on rank 0, once that is known."""
        if self.has_rebuilt or not self.options.rebuilds:
            return
        if self.updates is not None:
            self.updates.synchronize()
        order = list(self.ready.ready_ps)
        order_is_known = bool(order) and len(order) == len(self.buckets.parameters)
        if self.phase is not Phase.IDLE or not order_is_known or not torch.is_grad_enabled():
            return

        device = self.buckets.parameters[0].device
        order = agree_on_order(self._communicator, order, device)
        timing = None
        if self.options.strategy.needs_timing:
            timing = agree_on_timing(self._communicator, self.ready.ready_ps, device)

        self.has_rebuilt = True
        self.buckets.build(self.options.limits, order, timing)
        self.buckets.adopt()
        self.ready.follow(each=False)
        self.ready.group_hooks()
        self._reducer = self.buckets.reducer()

    def backward_began(self) -> None:
        """Take the time."""
        self.unfinished.check()
        self.times.first("backward_began")
        self._hooks.begin()

    def backward_ended(self) -> None:
        """Tell the reducer, unless the pass reached no parameter; keep an error of missing gradients."""
        try:
            self.ready.end()
            if self.phase is Phase.FILLING:
                self._end()
        except UnfinishedReductionError as error:
            self.latest_error = error
            if self.updates is not None:
                raise
            self.unfinished.keep(error.parameters, UNUSED if self.readiness is None else STATIC_GRAPH_LACKS)
            self.latest_error = self.unfinished.kept

    def gradient_failed(self, error: Exception) -> None:
        """Take note of an error; where the graph has changed, what is missing is told once more."""
        self.latest_error = error
        if isinstance(error, GraphChangedError):
            missing = [
                index for index in range(len(self.buckets.parameters)) if index not in self.ready.ready_ps
            ]
            self.unfinished.keep(missing, STATIC_GRAPH_LACKS)

    def pass_abandoned(self) -> None:
        """Start anew, once the messages of the pass are out of the way."""
        if self.updates is not None:
            self.updates.deferred.remove()
        self.in_flight.settle()
        self.buckets.forget()
        self.ready.abandon()
        self._reducer = self.buckets.reducer()

    def begin(self, shadowing: bool = False) -> None:
        """Begin a pass, once the one before is over; *shadowing*: no gradient is handed back."""
        if self.updates is not None:
            self.updates.begin()
        self.averaged.begin(shadowing)
        self.ready.begin()
        self.in_flight.begin(self.forward_began_ps)
        self.tell(BackwardBegan())

    def tell(self, event: Event) -> None:
        """Tell the reducer, and carry its commands out."""
        with self.in_flight.undisturbed:
            for command in self._reducer.handle(event):
                match command:
                    case LaunchBucket(bucket, collective):
                        self.in_flight.launch(bucket, collective, self.ready.ready_ps)
                    case AwaitBucket(bucket):
                        self._arrived(self.in_flight.wait(bucket))
                    case UpdateBucket(bucket):
                        assert self.updates is not None
                        self.updates.update(bucket)
                    case FinishBackward():
                        self._finish()

    def advance(self, wait: bool = False) -> None:
        """Advance what is in flight, or wait for all of it, and tell the reducer what has completed."""
        while wait and self.in_flight.first is not None:
            self._arrived(self.in_flight.wait(self.in_flight.first))
        for run in self.in_flight.poll():
            self._arrived(run)

    def _arrived(self, run: BucketRun) -> None:
        with self.in_flight.undisturbed:
            if self.updates is not None:
                self.updates.arrived(run)
            else:
                self.averaged.arrived(run, self.phase)
            self.tell(BucketReduced(run.bucket))

    def _end(self) -> None:
        """Tell the reducer; before it waits for what is in flight, hand back what has arrived."""
        if self.updates is None:
            at_once = type(self.options.strategy).choose is Strategy.choose
            are_last = at_once and self.in_flight.comm_hook is None
            self.averaged.backward_ends(self.in_flight.landed, are_last)
        self.tell(BackwardEnded())

    def _finish(self) -> None:
        if self.updates is None:
            self.averaged.finish()
        if self._checks is not None:
            self._checks.reduced(self._communicator)
        self.finished()
        if self._communicator.rank == 0 and LOGGER.isEnabledFor(logging.DEBUG):
            table = bucket_table(self.in_flight.landed)
            LOGGER.debug("what became of the buckets, times in us:\n%s", table)


def _advance_if_alive(reference: weakref.ref[TorchDriver]) -> Callable[[], None]:
    """Return what advances a driver, but does not keep it alive: a collective may outlive its model."""

    def advance() -> None:
        living = reference()
        if living is not None:
            living.advance()

    return advance
