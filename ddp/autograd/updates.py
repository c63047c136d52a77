"""Trains with strategies that update parameters themselves: priority, dear, zero1, data_parallel.

    torch                                               reducer
    the optimizer's step is asked for               →   OptimizerStepped
    a module is about to use a parameter (`needs`)  →   ParameterNeeded
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

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import Parameter

from collectives.catalogue.selectors import Choice
from collectives.communicators.communicator import Communicator
from collectives.communicators.connection import connect
from collectives.execution.work import Interrupting, Work
from ddp.autograd.bucket_collectives import ROOT, own_part, start
from ddp.autograd.clipping import clip
from ddp.autograd.driver import TorchDriver
from ddp.autograd.options import ReductionOptions
from ddp.autograd.parameter_use import Needs
from ddp.autograd.timeline import SpanRecorder
from ddp.buckets.deferred_gradient import DeferredGradients
from ddp.buckets.flat_bucket import FlatBucket
from ddp.errors import DDPError, NotSupportedError
from ddp.reduction.events import Command, EverythingNeeded, OptimizerStepped, ParameterNeeded
from ddp.reduction.reducer import Phase
from ddp.reduction.strategies.plan import ALL_GATHER, BROADCAST, REDUCE_SCATTER, Timing

Update = Callable[[list[Parameter]], None]


def connect_apart(
    group: dist.ProcessGroup | None, algorithm: Choice, timeout: float | None, device: torch.device
) -> Communicator:
    """Return a communicator between the ranks of *group*, over connections of its own."""
    apart = dist.new_group(dist.get_process_group_ranks(group), use_local_synchronization=True)
    return connect(apart, algorithm, timeout=timeout, device=device)


class OverlappedDriver(TorchDriver):
    """Reduces the gradients of *parameters* of *module*, and has them updated.

    Args:
        module: what is trained.
        parameters: by name, in the order of registration.
        communicator: carries the buckets, and nothing else.
        options: see `ReductionOptions`.
        recorder: is told compute and communication spans, in the communicator's time.

    Raises:
        NotSupportedError: a setting asks for what only strategies of whole buckets have.
    """

    def __init__(
        self,
        module: nn.Module,
        parameters: dict[str, Parameter],
        communicator: Communicator,
        options: ReductionOptions,
        recorder: SpanRecorder | None = None,
    ) -> None:
        strategy = options.strategy
        if options.as_view or options.sparse:
            wanted = "gradient_as_bucket_view" if options.as_view else "sparse gradients"
            raise NotSupportedError(
                f"strategy {strategy.name} does not go with {wanted}; leave it out, or use wait_free"
            )
        if strategy.plans_once:
            options = replace(options, first_limits=options.limits, rebuilds=False)
        self._update: Update | None = None
        self._unreduced: dict[int, int] = {}
        self._is_busy = False
        self._deferred = DeferredGradients(parameters)
        super().__init__(parameters, communicator, options, recorder=recorder)
        self._needs = Needs(module, parameters, self._need)

    def attach(self, update: Update) -> None:
        """Let *update* be the optimizer's step: of parameters, or of the rank's parts of the buffers."""
        if self._update is not None:
            raise DDPError("this module has an OverlappedOptimizer already; make one for each module")
        self._update = update

    def parts(self) -> list[Parameter]:
        """Return, for each buffer, a parameter that stands for this rank's part of it."""
        self._parts = [Parameter(self._own(buffer).clone()) for buffer in range(len(self._flat))]
        return self._parts

    def step(self) -> None:
        """Update the parameters, now or when their gradients have arrived.

        Raises:
            DDPError: there are no reduced gradients to apply.
        """
        if self._reducer.phase is not Phase.HOLDING:
            raise DDPError(
                "step() without gradients: it belongs after each backward pass whose gradients are reduced, "
                "so once after the last of those in no_sync()"
            )
        self._advance()
        self._deferred.remove()
        self._feed(OptimizerStepped())

    def clip(self, max_norm: float, norm_type: float) -> torch.Tensor:
        """Wait for all gradients, scale them to a norm of at most *max_norm*, and return what it was.

        Raises:
            DDPError: there are no reduced gradients, or no such norm.
        """
        if self._reducer.phase is not Phase.HOLDING:
            raise DDPError(
                "clip_grad_norm_() without gradients: it belongs between a backward pass whose gradients are "
                "reduced and step()"
            )
        while in_flight := self._carrier.in_flight:
            self._carrier.wait(in_flight[0])
            self._reduced(in_flight[0])
        return clip(self._gradients(), max_norm, norm_type, self._options.strategy, self._communicator)

    def synchronize(self) -> None:
        """Return when every update that a step has asked for is done."""
        if self._reducer.phase is Phase.DRAINING:
            self._feed(EverythingNeeded())

    def step_in_backward(self) -> None:
        """Refuse optimizers that belong to single parameters.

        Raises:
            NotSupportedError: there are any.
        """
        super().step_in_backward()
        if self._owners:
            raise NotSupportedError("give optimizers to OverlappedOptimizer, not to single parameters")

    def forward_begins(self) -> None:
        """Take note of a forward pass; wait for what it may use without a word."""
        if self._update is None and torch.is_grad_enabled():
            name = self._options.strategy.name
            raise DDPError(
                f"strategy {name} updates parameters itself: before the first forward "
                "pass make optimizer = ddp.OverlappedOptimizer(model, lambda own: SGD(own, lr=0.1)), and use "
                "it in place of any other"
            )
        super().forward_begins()
        for index in self._needs.begin():
            self._need(index)

    def forward_ended(self, outputs: Sequence[torch.Tensor] | None) -> None:
        """Take note of the end; see `Passes.forward_ended`."""
        self._needs.end()
        super().forward_ended(outputs)

    def rebuild_if_due(self) -> None:
        """Bucket anew in the order of gradients on rank 0, once that is known."""
        if self._options.rebuilds and not self.has_rebuilt:
            self.synchronize()
        if self._reducer.phase is Phase.IDLE:
            super().rebuild_if_due()

    def gradient_ready(self, index: int) -> None:
        """Take what is ready, and advance what is in flight.

        Raises:
            DDPError: the gradients of the pass before have not been applied.
        """
        if self._reducer.phase is Phase.HOLDING:
            raise DDPError(
                "a second backward pass before the optimizer's step: call step() of the OverlappedOptimizer "
                "after each backward pass (another optimizer finds no gradients), or accumulate in no_sync()"
            )
        self.synchronize()
        super().gradient_ready(index)

    def pass_abandoned(self) -> None:
        """Start anew; see `TorchDriver.pass_abandoned`."""
        self._deferred.remove()
        super().pass_abandoned()

    def _need(self, index: int) -> None:
        self._timeline.computed(f"forward:{self._names[index]}")
        if self._reducer.phase is Phase.DRAINING:
            self._advance()
        if self._reducer.phase is Phase.DRAINING:
            self._feed(ParameterNeeded(index))
        self._timeline.resume()

    def _gradients(self) -> list[torch.Tensor]:
        """Return those that this rank updates with, where they lie: of its parts, or of all parameters."""
        if self._options.strategy.shards_update:
            return [self._own(buffer) for buffer in range(len(self._flat))]
        places = [self._place[index] for index in range(len(self._parameters))]
        return [self._memory(buffer).views[position] for buffer, position in places]

    def _obey(self, commands: Iterable[Command]) -> None:
        with self._undisturbed():
            super()._obey(commands)

    @contextlib.contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Keep completions until the end of what must be done in order; then somebody polls."""
        within, self._is_busy = self._is_busy, True
        try:
            yield
        finally:
            self._is_busy = within

    def _interrupted(self) -> None:
        """A collective has completed while the rank computes."""
        if not self._is_busy:
            self._advance()

    def _advance(self) -> None:
        for reduced in self._carrier.poll():
            self._reduced(reduced)

    def _take(self, index: int) -> bool:
        told = super()._take(index)
        self._deferred.put(index)
        return told

    def _watch_few(self) -> None:
        """Go on watching every gradient: each leaves its place as soon as it comes."""

    def _launch(self, bucket: int, collective: str) -> None:
        own = self._plan.buckets[bucket]
        flat = self._flat[own.buffer]
        nbytes = flat.nbytes if own.part is None else own.part[1] - own.part[0]
        self._carrier.launch(bucket, nbytes, partial(self._carry, bucket, collective), collective)

    def _carry(self, bucket: int, collective: str) -> Work:
        work = start(collective, self._payload(bucket), self._communicator)
        if isinstance(work, Interrupting):
            work.interrupt(self._interrupted)
        return work

    def _memory(self, buffer: int) -> FlatBucket:
        memory = self._flat[buffer]
        assert isinstance(memory, FlatBucket)
        return memory

    def _payload(self, bucket: int) -> torch.Tensor:
        """Return what travels."""
        own = self._plan.buckets[bucket]
        payload = self._memory(own.buffer).payload.view(-1)
        if own.part is None:
            return payload
        begin, end = (edge // payload.element_size() for edge in own.part)
        return payload[begin:end]

    def _own(self, buffer: int) -> torch.Tensor:
        """Return this rank's part."""
        return own_part(self._memory(buffer).flat, self._communicator)

    def _reduced(self, bucket: int) -> None:
        brings_parameters = ALL_GATHER if self._options.strategy.shards_update else BROADCAST
        with self._undisturbed():
            if self._carrier.last_collective == brings_parameters:
                flat = self._memory(self._plan.buckets[bucket].buffer)
                with torch.no_grad():
                    torch._foreach_copy_(list(flat.parameters), flat.views)
            super()._reduced(bucket)

    def _update_bucket(self, bucket: int) -> None:
        assert self._update is not None
        own = self._plan.buckets[bucket]
        if self._options.strategy.shards_update:
            self._update_part(own.buffer)
        elif not self._options.strategy.updates_on_root:
            self._update_arrived(own.parameters)
        elif self._communicator.rank == ROOT:
            self._update_arrived(own.parameters)
            flat = self._memory(own.buffer)
            with torch.no_grad():
                torch._foreach_copy_(flat.views, list(flat.parameters))

    def _update_arrived(self, parameters: Sequence[int]) -> None:
        """Update those of *parameters* of which nothing is missing any more."""
        assert self._update is not None
        arrived = []
        for index in parameters:
            self._unreduced[index] -= 1
            if not self._unreduced[index]:
                buffer, position = self._place[index]
                self._parameters[index].grad = self._memory(buffer).views[position]
                arrived.append(self._parameters[index])
        self._update(arrived)
        for parameter in arrived:
            parameter.grad = None

    @torch.no_grad()
    def _update_part(self, buffer: int) -> None:
        """Update the rank's part of a buffer, and leave the new values in the buffer."""
        assert self._update is not None
        flat, part = self._memory(buffer), self._parts[buffer]
        own = self._own(buffer)
        part.grad = own.clone()
        torch._foreach_copy_(flat.views, list(flat.parameters))
        part.copy_(own)
        self._update([part])
        part.grad = None
        own.copy_(part)

    def _begin(self) -> None:
        self._unreduced = dict.fromkeys(range(len(self._parameters)), 0)
        for bucket in self._plan.buckets:
            for index in bucket.parameters:
                self._unreduced[index] += 1
        super()._begin()

    def _hand_back(self, bucket: int) -> None:
        """Leave the gradients where they are: they have been applied, or will be."""

    def _build(
        self, limits: Sequence[int], order: Sequence[int] | None, timing: Timing | None = None
    ) -> None:
        if order is None:
            order = list(reversed(range(len(self._parameters))))
        super()._build(limits, order, timing)

    def _memory_of(self, bucket: Sequence[int]) -> Any:
        parameters = [self._parameters[index] for index in bucket]
        names = [self._names[index] for index in bucket]
        divided = any(own.collective in (REDUCE_SCATTER, ALL_GATHER) for own in self._plan.launches)
        multiple_of = self._communicator.world_size if divided else 1
        return FlatBucket(parameters, names, False, self._options.batched, multiple_of=multiple_of)
