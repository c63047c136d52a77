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
order in which gradients became ready.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import Parameter

from collectives.communicator import Communicator
from ddp.bucketing import assign_buckets, bucket_limits
from ddp.drivers.carrier import Carrier
from ddp.drivers.passes import Passes
from ddp.drivers.timeline import SpanRecorder, Timeline
from ddp.flat_bucket import FlatBucket
from ddp.overlap import Strategy
from ddp.reducer import (
    AwaitBucket,
    BackwardBegan,
    BackwardEnded,
    BucketReduced,
    Event,
    FinishBackward,
    GradReady,
    LaunchBucket,
    Phase,
    Reducer,
)

NO_LIMIT = 2**62


class TorchDriver:
    """Reduces the gradients of *parameters* during backward passes.

    The first pass uses one bucket per dtype and device; the order in which gradients became ready
    in it, on rank 0, decides the buckets of all later passes.

    Args:
        parameters: by name, in the order of registration.
        communicator: carries the buckets.
        strategy: when complete buckets go.
        bucket_cap_mb: see `ddp.bucketing.bucket_limits`.
        as_view: let gradients be views of the buckets.
        recorder: is told compute and communication spans, in the communicator's time.
    """

    def __init__(
        self,
        parameters: dict[str, Parameter],
        communicator: Communicator,
        strategy: Strategy,
        bucket_cap_mb: float | None = None,
        as_view: bool = False,
        recorder: SpanRecorder | None = None,
    ) -> None:
        self._names = list(parameters)
        self._parameters = list(parameters.values())
        self._communicator = communicator
        self._strategy = strategy
        self._limits = bucket_limits(bucket_cap_mb)
        self._as_view = as_view
        self._ready_order: list[int] = []
        self._rebuilt = False
        self._timeline = Timeline(communicator, recorder)
        self._carrier = Carrier(communicator, self._timeline)
        self._build((NO_LIMIT,), order=None)
        self._passes = Passes(parameters, self, self._timeline)

    @property
    def bucket_nbytes(self) -> list[int]:
        """Size of each bucket in bytes."""
        return [bucket.nbytes for bucket in self._flat]

    def forward_begins(self) -> None:
        """Take note of a forward pass; with gradients enabled, re-bucket if it is time."""
        outside_backward = self._passes.forward_begins()
        order_is_known = len(self._ready_order) == len(self._parameters)
        if not self._rebuilt and order_is_known and outside_backward and torch.is_grad_enabled():
            self._rebuild()
        self._timeline.resume()

    def forward_ended(self, outputs: Sequence[torch.Tensor] | None) -> None:
        """Take note of the end; see `Passes.forward_ended`."""
        self._passes.forward_ended(outputs)

    def gradient_ready(self, index: int) -> None:
        """Copy the gradient into its bucket, and tell the reducer."""
        if self._reducer.phase is Phase.IDLE:
            self._ready_order.clear()
            self._feed(BackwardBegan())
        bucket, position = self._place[index]
        self._flat[bucket].take(position, 1.0 / self._communicator.world_size)
        self._ready_order.append(index)
        self._feed(GradReady(index))
        for reduced in self._carrier.poll():
            self._feed(BucketReduced(reduced))

    def backward_ended(self) -> None:
        """Tell the reducer, unless the pass reached no parameter."""
        if self._reducer.phase is Phase.FILLING:
            self._feed(BackwardEnded())

    def pass_abandoned(self) -> None:
        """Start anew, once the messages of the pass are out of the way."""
        self._carrier.settle()
        self._reducer = Reducer(self._assignment, self._strategy, self._names)

    def _feed(self, event: Event) -> None:
        for command in self._reducer.handle(event):
            match command:
                case LaunchBucket(bucket):
                    self._carrier.launch(bucket, self._flat[bucket])
                case AwaitBucket(bucket):
                    self._carrier.wait(bucket)
                    self._feed(BucketReduced(bucket))
                case FinishBackward():
                    for flat in self._flat:
                        flat.give_back()

    def _build(self, limits: Sequence[int], order: Sequence[int] | None) -> None:
        self._assignment = assign_buckets(
            [parameter.numel() * parameter.element_size() for parameter in self._parameters],
            [(parameter.dtype, parameter.device) for parameter in self._parameters],
            limits,
            order,
        )
        self._flat = [
            FlatBucket(
                [self._parameters[index] for index in bucket],
                [self._names[index] for index in bucket],
                self._as_view,
            )
            for bucket in self._assignment
        ]
        self._place = {
            index: (number, position)
            for number, bucket in enumerate(self._assignment)
            for position, index in enumerate(bucket)
        }
        self._reducer = Reducer(self._assignment, self._strategy, self._names)

    def _rebuild(self) -> None:
        """Bucket anew in the order in which gradients became ready on rank 0."""
        order = torch.tensor(self._ready_order, dtype=torch.int64, device=self._parameters[0].device)
        self._communicator.broadcast(order, root=0)
        self._build(self._limits, order.tolist())
        for bucket in self._flat:
            bucket.adopt()
        self._rebuilt = True
