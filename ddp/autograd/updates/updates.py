"""Updates by strategies that update parameters themselves: priority, dear, zero1, data_parallel.

    torch                                               reducer
    the optimizer's step is asked for               →   OptimizerStepped
    a module is about to use a parameter            →   ParameterNeeded
    the state is read, or buckets change            →   EverythingNeeded

    reducer                                             torch
    UpdateBucket                                    →   the optimizer's step, for what is in the bucket

A gradient leaves ``parameter.grad`` as soon as it is copied into its buffer, and is there again only while
the optimizer updates its parameter.  Until the step, something stands in its place that says so.

In virtual time a collective that completes interrupts the computation, and what its credit lets go is
launched; elsewhere the rank learns of it when it is called next.

Which collectives have been launched at a given line of the user's script differs from rank to rank here,
so the communicator must be one that nobody else uses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import torch
from torch import nn
from torch.nn import Parameter

from collectives.communicators.communicator import Communicator
from ddp.autograd.bucket_collectives import ROOT, own_part
from ddp.autograd.gradient_buckets import GradientBuckets
from ddp.autograd.observation.timeline import RankTimeline
from ddp.autograd.options import ReductionOptions
from ddp.autograd.reduction import Reduction
from ddp.autograd.updates.clipping import clip
from ddp.autograd.updates.parameter_use import ParameterUse
from ddp.buckets.deferred_gradient import DeferredGradients
from ddp.errors import DDPError, NotSupportedError
from ddp.reduction.events import EverythingNeeded, OptimizerStepped, ParameterNeeded
from ddp.reduction.reducer import Phase
from ddp.reduction.strategies.plan import ALL_GATHER, BROADCAST
from ddp.reduction.timings import BucketRun

Update = Callable[[list[Parameter]], None]


def options_for_updates(options: ReductionOptions) -> ReductionOptions:
    """Return the options of a strategy that updates parameters itself.

    Raises:
        NotSupportedError: an option asks for what only strategies of whole buckets have.
    """
    strategy = options.strategy
    if options.as_view or options.sparse:
        wanted = "gradient_as_bucket_view" if options.as_view else "sparse gradients"
        raise NotSupportedError(
            f"strategy {strategy.name} does not go with {wanted}; leave it out, or use wait_free"
        )
    if strategy.plans_once:
        return replace(options, first_limits=options.limits, rebuilds=False)
    return options


class Updates:
    """Has parameters of *module* updated when their gradients have arrived.

    Args:
        module: what is trained.
        parameters: by name, in the order of registration.
        buckets: where their gradients lie.
        communicator: carries the buckets, and nothing else.
        options: see `options_for_updates`.
        timeline: is told what is computed before a parameter is needed.

    Attributes:
        deferred: stand in the place of gradients on their way.
    """

    def __init__(
        self,
        module: nn.Module,
        parameters: dict[str, Parameter],
        buckets: GradientBuckets,
        communicator: Communicator,
        options: ReductionOptions,
        timeline: RankTimeline,
    ) -> None:
        self.deferred = DeferredGradients(parameters)
        self._names = list(parameters)
        self._buckets = buckets
        self._communicator = communicator
        self._strategy = options.strategy
        self._timeline = timeline
        self._update: Update | None = None
        self._parts: list[Parameter] = []
        self._num_unreduced: dict[int, int] = {}
        self._use = ParameterUse(module, parameters, self.need)

    def report_to(self, reduction: Reduction) -> None:
        """Tell *reduction*, which is not kept alive if it is a weak proxy."""
        self._reduction = reduction

    def attach(self, update: Update) -> None:
        """Let *update* be the optimizer's step: of parameters, or of the rank's parts of the buffers.

        Raises:
            DDPError: there is one already.
        """
        if self._update is not None:
            raise DDPError("this module has an OverlappedOptimizer already; make one for each module")
        self._update = update

    def parts(self) -> list[Parameter]:
        """Return, for each buffer, a parameter that stands for this rank's part of it."""
        self._parts = [Parameter(own.clone()) for own in self._own_parts()]
        return self._parts

    def step(self) -> None:
        """Update the parameters, now or when their gradients have arrived.

        Raises:
            DDPError: there are no reduced gradients to apply.
        """
        if self._reduction.phase is not Phase.HOLDING:
            raise DDPError(
                "step() without gradients: it belongs after each backward pass whose gradients are reduced, "
                "so once after the last of those in no_sync()"
            )
        self._reduction.advance()
        self.deferred.remove()
        self._reduction.tell(OptimizerStepped())

    def clip(self, max_norm: float, norm_type: float) -> torch.Tensor:
        """Wait for all gradients, scale them to a norm of at most *max_norm*, and return what it was.

        Raises:
            DDPError: there are no reduced gradients, or no such norm.
        """
        if self._reduction.phase is not Phase.HOLDING:
            raise DDPError(
                "clip_grad_norm_() without gradients: it belongs between a backward pass whose gradients are "
                "reduced and step()"
            )
        self._reduction.advance(wait=True)
        if self._strategy.shards_update:
            gradients = self._own_parts()
        else:
            gradients = [self._buckets.view(index) for index in range(len(self._names))]
        return clip(gradients, max_norm, norm_type, self._strategy, self._communicator)

    def synchronize(self) -> None:
        """Return when every update that a step has asked for is done."""
        if self._reduction.phase is Phase.DRAINING:
            self._reduction.tell(EverythingNeeded())

    def check_optimizer(self, with_optimizer: Collection[int]) -> None:
        """Check that a forward pass with gradients may begin.

        Raises:
            DDPError: nobody would apply them.
            NotSupportedError: there are parameters that have an optimizer each, *with_optimizer*.
        """
        if with_optimizer:
            raise NotSupportedError("give optimizers to OverlappedOptimizer, not to single parameters")
        if self._update is None and torch.is_grad_enabled():
            raise DDPError(
                f"strategy {self._strategy.name} updates parameters itself: before the first forward "
                "pass make optimizer = ddp.OverlappedOptimizer(model, lambda own: SGD(own, lr=0.1)), and use "
                "it in place of any other"
            )

    def forward_begins(self) -> None:
        """Wait for the parameters that a forward pass may use without a word."""
        for index in self._use.begin():
            self.need(index)

    def forward_ended(self) -> None:
        """Take note of the end of a forward pass."""
        self._use.end()

    def need(self, index: int) -> None:
        """Return when a parameter is up to date, which a forward pass is about to use."""
        self._timeline.computed(f"forward:{self._names[index]}")
        if self._reduction.phase is Phase.DRAINING:
            self._reduction.advance()
        if self._reduction.phase is Phase.DRAINING:
            self._reduction.tell(ParameterNeeded(index))
        self._timeline.resume()

    def begin(self) -> None:
        """Begin a backward pass, once the updates of the one before are done.

        Raises:
            DDPError: the gradients of the pass before have not been applied.
        """
        if self._reduction.phase is Phase.HOLDING:
            raise DDPError(
                "a second backward pass before the optimizer's step: call step() of the OverlappedOptimizer "
                "after each backward pass (another optimizer finds no gradients), or accumulate in no_sync()"
            )
        self.synchronize()
        self._num_unreduced = dict.fromkeys(range(len(self._names)), 0)
        for bucket in self._buckets.plan.buckets:
            for index in bucket.parameters:
                self._num_unreduced[index] += 1

    def arrived(self, run: BucketRun) -> None:
        """Take the new parameters out of a bucket, if these are what its collective has brought."""
        brings_parameters = ALL_GATHER if self._strategy.shards_update else BROADCAST
        if run.collective == brings_parameters:
            flat = self._buckets.flat(self._buckets.plan.buckets[run.bucket].buffer)
            with torch.no_grad():
                torch._foreach_copy_(list(flat.parameters), flat.views)

    def update(self, bucket: int) -> None:
        """Run the optimizer on what is in a bucket, as far as this rank updates it."""
        own = self._buckets.plan.buckets[bucket]
        if self._strategy.shards_update:
            self._update_part(own.buffer)
        elif not self._strategy.updates_on_root:
            self._update_arrived(own.parameters)
        elif self._communicator.rank == ROOT:
            self._update_arrived(own.parameters)
            flat = self._buckets.flat(own.buffer)
            with torch.no_grad():
                torch._foreach_copy_(flat.views, list(flat.parameters))

    def _update_arrived(self, parameters: Sequence[int]) -> None:
        """Update those of *parameters* of which nothing is missing any more."""
        assert self._update is not None
        arrived = []
        for index in parameters:
            self._num_unreduced[index] -= 1
            if not self._num_unreduced[index]:
                parameter = self._buckets.parameters[index]
                parameter.grad = self._buckets.view(index)
                arrived.append(parameter)

        self._update(arrived)
        for parameter in arrived:
            parameter.grad = None

    @torch.no_grad()
    def _update_part(self, buffer: int) -> None:
        """Update the rank's part of a buffer, and leave the new values in the buffer."""
        assert self._update is not None
        flat, part = self._buckets.flat(buffer), self._parts[buffer]
        own = own_part(flat.flat, self._communicator)
        part.grad = own.clone()
        torch._foreach_copy_(flat.views, list(flat.parameters))
        part.copy_(own)

        self._update([part])
        part.grad = None
        own.copy_(part)

    def _own_parts(self) -> list[torch.Tensor]:
        """Return this rank's part of each buffer."""
        buffers = range(len(self._buckets.memory))
        return [own_part(self._buckets.flat(buffer).flat, self._communicator) for buffer in buffers]
