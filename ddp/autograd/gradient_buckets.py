"""Gradient buckets: what lies where, in whose memory, and how it comes back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch.nn import Parameter

from collectives.communicators.communicator import Communicator
from collectives.execution.work import Work
from ddp.autograd.bucket_collectives import start
from ddp.autograd.options import NO_LIMIT, ReductionOptions
from ddp.buckets.flat_bucket import FlatBucket
from ddp.buckets.sparse import SparseBucket
from ddp.reduction.reducer import Reducer
from ddp.reduction.strategies.plan import ALL_GATHER, REDUCE_SCATTER, Layout, PassTiming, Plan


class GradientBuckets:
    """The buckets of one module's gradients, by the plan of its strategy.

    Args:
        parameters: by name; their indices count in this order.
        options: see `ReductionOptions`.
        communicator: between the ranks, each of which may have a part of a buffer; buffers are of its memory.

    Attributes:
        parameters: whose gradients lie here.
        plan: see `ddp.reduction.strategies.plan`.
        members: for each buffer the indices of its parameters.
        memory: for each buffer what holds its gradients.
    """

    def __init__(
        self, parameters: Mapping[str, Parameter], options: ReductionOptions, communicator: Communicator
    ) -> None:
        self.parameters = list(parameters.values())
        self._names = list(parameters)
        self._options = options
        self._communicator = communicator
        self.build(options.first_limits)

    def build(
        self, limits: Sequence[int], order: Sequence[int] | None = None, timing: PassTiming | None = None
    ) -> None:
        """Divide the gradients anew; *order* and *timing* as of `Layout`."""
        self.plan: Plan = self._planned(limits, order, timing)
        self.members = [list(buffer) for buffer in self.plan.buffers]
        self.memory = [self._memory_of(members) for members in self.members]
        self._places = {
            index: (buffer, position)
            for buffer, members in enumerate(self.members)
            for position, index in enumerate(members)
        }

    def reducer(self) -> Reducer:
        """Return a reducer of these buckets, before its first pass."""
        return Reducer(self.plan, self._options.strategy, self._names)

    @property
    def sizes(self) -> list[int]:
        """Size of each buffer in bytes."""
        return [memory.nbytes for memory in self.memory]

    def nbytes(self, bucket: int) -> int:
        """Return the size in bytes of what travels."""
        own = self.plan.buckets[bucket]
        if own.part is None:
            return self.memory[own.buffer].nbytes
        begin, end = own.part
        return end - begin

    def take(self, index: int, divisor: int) -> None:
        """Take the gradient of a parameter, divided; zeros where there is none."""
        buffer, position = self._places[index]
        self.memory[buffer].take(position, divisor)

    def take_all(self, indices: Sequence[int], divisor: int) -> None:
        """Take all gradients of a buffer, of which there are several."""
        memory = self.memory[self._places[indices[0]][0]]
        assert isinstance(memory, FlatBucket), "a sparse gradient has a buffer to itself"
        memory.take_all([self._places[index][1] for index in indices], divisor)

    def take_nothing(self, index: int) -> None:
        """Take zeros for a parameter, whatever its gradient."""
        buffer, position = self._places[index]
        self.memory[buffer].take_nothing(position)

    def give_back(self, buffer: int, untouched: Collection[int] = ()) -> None:
        """Hand the gradients of a buffer to its parameters, but for those *untouched*."""
        positions: Collection[int] = ()
        if untouched:
            members = enumerate(self.members[buffer])
            positions = {position for position, index in members if index in untouched}
        self.memory[buffer].give_back(positions)

    def adopt(self) -> None:
        """Let gradients that are views of earlier buckets be views of these."""
        for memory in self.memory:
            memory.adopt()

    def forget(self) -> None:
        """Forget what was taken in a pass that has been abandoned."""
        for memory in self.memory:
            memory.forget()

    def flat(self, buffer: int) -> FlatBucket:
        """Return the memory of a buffer whose gradients are dense."""
        memory = self.memory[buffer]
        assert isinstance(memory, FlatBucket)
        return memory

    def view(self, index: int) -> torch.Tensor:
        """Return the gradient of a parameter where it lies in its buffer."""
        buffer, position = self._places[index]
        return self.flat(buffer).views[position]

    def start(self, bucket: int, collective: str, communicator: Communicator) -> Work:
        """Start a collective on what travels in a bucket."""
        own = self.plan.buckets[bucket]
        memory = self.memory[own.buffer]
        if isinstance(memory, SparseBucket):
            return memory.start(communicator)

        payload = memory.payload.view(-1)
        if own.part is not None:
            begin, end = (edge // payload.element_size() for edge in own.part)
            payload = payload[begin:end]
        return start(collective, payload, communicator)

    def _planned(self, limits: Sequence[int], order: Sequence[int] | None, timing: PassTiming | None) -> Plan:
        strategy, sparse = self._options.strategy, self._options.sparse
        if order is None and strategy.updates_parameters:
            order = list(reversed(range(len(self.parameters))))

        members = list(enumerate(self.parameters))
        layout = Layout(
            [NO_LIMIT if i in sparse else p.numel() * p.element_size() for i, p in members],
            [(p.dtype, p.device, i if i in sparse else None) for i, p in members],
            limits,
            order,
            timing,
        )
        plan = strategy.plan(layout)
        if order is None:
            plan = Plan.of_whole_buffers(plan.buffers[::-1])
        return plan

    def _memory_of(self, members: Sequence[int]) -> FlatBucket | SparseBucket:
        parameters = [self.parameters[index] for index in members]
        names = [self._names[index] for index in members]
        if members[0] in self._options.sparse:
            return SparseBucket(parameters[0], names[0])

        in_parts = any(launch.collective in (REDUCE_SCATTER, ALL_GATHER) for launch in self.plan.launches)
        multiple_of = self._communicator.world_size if in_parts else 1
        zeros, options = self._communicator.zeros, self._options
        return FlatBucket(parameters, names, zeros, options.as_view, options.batched, multiple_of)
