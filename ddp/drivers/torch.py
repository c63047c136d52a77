"""Feeds the reducer from autograd, and carries its commands out on a communicator.

    autograd                                            reducer
    the first parameter's gradient is accumulated   →   BackwardBegan, GradReady
    another parameter's gradient is accumulated     →   GradReady
    the engine's final callback                     →   BackwardEnded
    a work has completed                            →   BucketReduced

    reducer                                             communicator
    LaunchBucket                                    →   all_reduce(async_op=True)
    AwaitBucket                                     →   wait
    FinishBackward                                  →   gradients go back to the parameters

A backward pass is reduced if it comes through the outputs of a forward pass that asked for it.  So
one of the bare module, or inside ``no_sync``, accumulates locally; one that reaches no parameter
(a generator trained through a frozen discriminator) reduces nothing; and re-entrant checkpoints,
which run backward passes of their own inside, do not end the outer one.

Nothing moves by itself over some transports, so every hook polls what is in flight.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.autograd import Variable
from torch.nn import Parameter

from collectives.communicator import Communicator
from collectives.work import Work
from ddp.bucketing import assign_buckets, bucket_limits
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
NO_PASS = -1


class SpanRecorder(Protocol):
    """What notes the spans of a run, such as `sim.Trace`."""

    def span(self, rank: int, lane: str, name: str, start_ps: int, end_ps: int, **args: Any) -> None:
        """Note that *name* ran on *lane* of *rank*."""


@dataclass(frozen=True, slots=True)
class _Flight:
    work: Work
    launched_ps: int


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
        self._recorder = recorder
        self._ready_order: list[int] = []
        self._rebuilt = False
        self._reducing_pass: int | None = None
        self._expected = False
        self._in_flight: dict[int, _Flight] = {}
        self._queue_free_ps = 0
        self._mark_ps = communicator.clock.now_ps()
        self._build((NO_LIMIT,), order=None)
        self._hook_parameters()

    @property
    def bucket_nbytes(self) -> list[int]:
        """Size of each bucket in bytes."""
        return [bucket.nbytes for bucket in self._flat]

    def forward_begins(self) -> None:
        """Take note of a forward pass; with gradients enabled, re-bucket if it is time."""
        outside_backward = torch._C._current_graph_task_id() == NO_PASS
        if outside_backward and self._reducing_pass is not None:
            self._abandon()
        order_is_known = len(self._ready_order) == len(self._parameters)
        if not self._rebuilt and order_is_known and outside_backward and torch.is_grad_enabled():
            self._rebuild()
        self._mark_ps = self._communicator.clock.now_ps()

    def forward_ended(self, outputs: Sequence[torch.Tensor] | None) -> None:
        """Take note of the end; reduce in backward passes that come through *outputs*.

        None: the next backward pass accumulates locally.  No outputs that need a gradient: the
        next backward pass that reaches a parameter is meant.
        """
        self._communicator.clock.charge("forward")
        self._note_compute("forward")
        differentiable = [output for output in outputs or () if output.grad_fn is not None]
        self._expected = outputs is not None and torch.is_grad_enabled() and not differentiable
        for output in differentiable:
            output.register_hook(_weak(self, TorchDriver._on_output))

    def _on_output(self) -> None:
        """Reduce in the backward pass that runs now."""
        running_pass = torch._C._current_graph_task_id()
        if self._reducing_pass == running_pass:
            return
        if self._reducing_pass is not None:
            self._abandon()
        self._reducing_pass = running_pass
        self._expected = False
        Variable._execution_engine.queue_callback(self._on_backward_end)
        self._mark_ps = self._communicator.clock.now_ps()

    def _on_gradient(self, index: int) -> None:
        self._communicator.clock.charge(f"gradient:{self._names[index]}")
        self._note_compute(f"gradient:{self._names[index]}")
        if self._expected:
            self._on_output()
        if self._reducing_pass is not None:
            if self._reducer.phase is Phase.IDLE:
                self._ready_order.clear()
                self._feed(BackwardBegan())
            bucket, position = self._place[index]
            self._flat[bucket].take(position, 1.0 / self._communicator.world_size)
            self._ready_order.append(index)
            self._feed(GradReady(index))
            self._notice_completions()
        self._mark_ps = self._communicator.clock.now_ps()

    def _on_backward_end(self) -> None:
        self._communicator.clock.charge("backward")
        self._note_compute("backward")
        if self._reducer.phase is Phase.FILLING:
            self._feed(BackwardEnded())
        self._reducing_pass = None

    def _feed(self, event: Event) -> None:
        for command in self._reducer.handle(event):
            match command:
                case LaunchBucket(bucket):
                    self._launch(bucket)
                case AwaitBucket(bucket):
                    self._complete(bucket)
                case FinishBackward():
                    for flat in self._flat:
                        flat.give_back()

    def _launch(self, bucket: int) -> None:
        launched_ps = self._communicator.clock.now_ps()
        work = self._communicator.all_reduce(self._flat[bucket].payload, op="sum", async_op=True)
        self._in_flight[bucket] = _Flight(work, launched_ps)

    def _notice_completions(self) -> None:
        """Advance what is in flight; works complete in the order in which they were launched."""
        self._communicator.poll()
        for bucket, flight in list(self._in_flight.items()):
            if not flight.work.is_completed():
                return
            self._complete(bucket)

    def _complete(self, bucket: int) -> None:
        flight = self._in_flight[bucket]
        flight.work.wait()
        del self._in_flight[bucket]
        end_ps = flight.work.completed_ps or self._communicator.clock.now_ps()
        if self._recorder is not None:
            start_ps = max(flight.launched_ps, self._queue_free_ps)
            nbytes = self._flat[bucket].nbytes
            rank = self._communicator.rank
            self._recorder.span(
                rank, "communication", f"all_reduce bucket {bucket}", start_ps, end_ps, nbytes=nbytes
            )
        self._queue_free_ps = end_ps
        self._feed(BucketReduced(bucket))

    def _note_compute(self, name: str) -> None:
        """Record what the rank computed since it last came out of this driver."""
        now_ps = self._communicator.clock.now_ps()
        if self._recorder is not None and now_ps > self._mark_ps:
            self._recorder.span(self._communicator.rank, "compute", name, self._mark_ps, now_ps)
        self._mark_ps = now_ps

    def _abandon(self) -> None:
        """Forget a pass that an exception has ended, once its messages are out of the way."""
        for flight in self._in_flight.values():
            flight.work.wait()
        self._in_flight.clear()
        self._reducing_pass = None
        self._reducer = Reducer(self._assignment, self._strategy, self._names)

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

    def _hook_parameters(self) -> None:
        handles = [
            parameter.register_post_accumulate_grad_hook(_weak(self, TorchDriver._on_gradient, index))
            for index, parameter in enumerate(self._parameters)
        ]
        weakref.finalize(self, _remove, handles)


def _weak(driver: TorchDriver, method: Callable[..., None], *arguments: Any) -> Callable[[object], None]:
    """Return a hook that calls *method*, but does not keep the driver, and so the buckets, alive."""
    reference = weakref.ref(driver)

    def hook(_: object) -> None:
        living = reference()
        if living is not None:
            method(living, *arguments)

    return hook


def _remove(handles: Iterable[Any]) -> None:
    for handle in handles:
        handle.remove()
