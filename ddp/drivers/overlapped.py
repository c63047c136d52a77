"""Trains with strategies that update parameters themselves: priority, dear, zero1.

    torch                                               reducer
    the optimizer's step is asked for               →   OptimizerStepped
    a module is about to use a parameter (`needs`)  →   ParameterNeeded
    the state is read, or buckets change            →   EverythingNeeded

    reducer                                             torch
    UpdateBucket                                    →   the optimizer's step, for what is in the bucket

A gradient leaves ``parameter.grad`` as soon as it is copied into its buffer, and is there again only while
the optimizer updates its parameter.

Which collectives have been launched at a given line of the user's script differs from rank to rank here,
so the communicator must be one that nobody else uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import Parameter

from collectives.choice import Choice
from collectives.communicator import Communicator
from collectives.connection import connect
from collectives.work import Work
from ddp.drivers.needs import Needs
from ddp.drivers.timeline import SpanRecorder
from ddp.drivers.torch import TorchDriver
from ddp.errors import DDPError, NotSupportedError
from ddp.events import EverythingNeeded, OptimizerStepped, ParameterNeeded
from ddp.flat_bucket import FlatBucket
from ddp.reducer import Phase
from ddp.settings import Settings
from ddp.strategies.plan import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, Timing

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
        settings: see `Settings`.
        recorder: is told compute and communication spans, in the communicator's time.

    Raises:
        NotSupportedError: a setting asks for what only strategies of whole buckets have.
    """

    def __init__(
        self,
        module: nn.Module,
        parameters: dict[str, Parameter],
        communicator: Communicator,
        settings: Settings,
        recorder: SpanRecorder | None = None,
    ) -> None:
        strategy = settings.strategy
        if strategy.only_simulated:
            raise NotSupportedError(f"strategy {strategy.name} cannot train: {strategy.only_simulated}")
        if settings.as_view or settings.sparse:
            wanted = "gradient_as_bucket_view" if settings.as_view else "sparse gradients"
            raise NotSupportedError(
                f"strategy {strategy.name} does not go with {wanted}; leave it out, or use wait_free"
            )
        if strategy.plans_once:
            settings = replace(settings, first_limits=settings.limits, rebuilds=False)
        self._update: Update | None = None
        self._unreduced: dict[int, int] = {}
        super().__init__(parameters, communicator, settings, recorder=recorder)
        self._needs = Needs(module, parameters, self._need)

    def attach(self, update: Update) -> None:
        """Let *update* be the optimizer's step: of parameters, or of the rank's parts of the buffers."""
        if self._update is not None:
            raise DDPError("this module has an OverlappedOptimizer already; make one for each module")
        self._update = update

    def parts(self) -> list[Parameter]:
        """Return, for each buffer, a parameter that stands for this rank's part of it."""
        self._parts = [
            Parameter(self._own(self._memory(buffer).flat).clone()) for buffer in range(len(self._flat))
        ]
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
        self._feed(OptimizerStepped())

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
            name = self._settings.strategy.name
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
        if self._settings.rebuilds and not self.has_rebuilt:
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

    def _need(self, index: int) -> None:
        self._timeline.computed(f"forward:{self._names[index]}")
        if self._reducer.phase is Phase.DRAINING:
            self._advance()
        if self._reducer.phase is Phase.DRAINING:
            self._feed(ParameterNeeded(index))
        self._timeline.resume()

    def _advance(self) -> None:
        for reduced in self._carrier.poll():
            self._reduced(reduced)

    def _take(self, index: int) -> None:
        super()._take(index)
        self._parameters[index].grad = None

    def _launch(self, bucket: int, collective: str) -> None:
        own = self._plan.buckets[bucket]
        flat = self._flat[own.buffer]
        nbytes = flat.nbytes if own.part is None else own.part[1] - own.part[0]
        self._carrier.launch(bucket, nbytes, partial(self._carry, bucket, collective), collective)

    def _carry(self, bucket: int, collective: str) -> Work:
        payload = self._payload(bucket)
        if collective == ALL_REDUCE:
            return self._communicator.all_reduce(payload, op="sum", async_op=True)
        if collective == REDUCE_SCATTER:
            return self._communicator.reduce_scatter(self._own(payload), payload, op="sum", async_op=True)
        assert collective == ALL_GATHER
        return self._communicator.all_gather(payload, self._own(payload), async_op=True)

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

    def _own(self, payload: torch.Tensor) -> torch.Tensor:
        """Return this rank's part."""
        numel = payload.numel() // self._communicator.world_size
        return payload[self._communicator.rank * numel :][:numel]

    def _reduced(self, bucket: int) -> None:
        if self._settings.strategy.shards_update and self._carrier.last_collective == ALL_GATHER:
            flat = self._memory(self._plan.buckets[bucket].buffer)
            with torch.no_grad():
                torch._foreach_copy_(list(flat.parameters), flat.views)
        super()._reduced(bucket)

    def _update_bucket(self, bucket: int) -> None:
        assert self._update is not None
        own = self._plan.buckets[bucket]
        if self._settings.strategy.shards_update:
            self._update_part(own.buffer)
            return
        arrived = []
        for index in own.parameters:
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
        own = self._own(flat.flat)
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

    def _finish(self) -> None:
        """Leave the gradients where they are: they have been applied."""
        self._pass_is_over()

    def _build(
        self, limits: Sequence[int], order: Sequence[int] | None, timing: Timing | None = None
    ) -> None:
        if order is None:
            order = list(reversed(range(len(self._parameters))))
        super()._build(limits, order, timing)

    def _memory_of(self, bucket: Sequence[int]) -> Any:
        parameters = [self._parameters[index] for index in bucket]
        names = [self._names[index] for index in bucket]
        return FlatBucket(
            parameters, names, False, self._settings.batched, multiple_of=self._communicator.world_size
        )
