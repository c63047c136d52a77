"""Recording of a block: what it issues is heard while it is carried out, with all that forbids a record.

A block can be issued again only if all that it does is on one stream, without events, collectives or waits;
if one output wants a gradient, and its gradients reach nothing but its parameters and the inputs that FSDP2
hands over to it alone; if each gradient comes once, at one place; and if nothing that it has made is left at
the end but outputs and gradients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from collectives.virtual.computation.totals import Totals
from collectives.virtual.gpu.accelerator import CudaDevices
from collectives.virtual.gpu.shapes import kind_anywhere
from collectives.virtual.gpu.values import value_of
from collectives.virtual.layers.record import Backward, Birth, Forward, Issue, Kind
from collectives.virtual.memory.held_storage import HeldStorage
from collectives.virtual.streams.gpu import BETWEEN, Gpu
from collectives.virtual.streams.score import HostWork, Item, Launch

_SUM = torch.ops.aten.add.Tensor
"""Operation by which autograd adds gradients of one tensor."""
_ELSEWHERE = -(10**9)
"""Number of a storage that is made where a parameter is given its gradient."""
HANDED_OVER = "RegisterPostBackwardFunctionBackward"
"""Name of the function whose results FSDP2 gives to a module, and to nobody else."""


class Recording:
    """Listens to one call of a block and to its backward pass.

    Args:
        devices: of the rank.
        gpu: that of the devices on which it computes.
        module: the block.
        inputs: leaves of its arguments.
        ended: is told when all is known.

    Attributes:
        reason: why the block cannot be issued again, in words; empty if it can.
        forward: what is known of the call.
        backward: of its backward pass; None where there is none.
    """

    forward: Forward

    def __init__(
        self,
        devices: CudaDevices,
        gpu: Gpu,
        module: nn.Module,
        inputs: Sequence[Any],
        ended: Callable[[Recording], None],
    ) -> None:
        self.reason = ""
        self.backward: Backward | None = None
        self._devices, self._gpu, self._memory = devices, gpu, devices.memory
        self._prefix = self._memory.scopes.name_of(module)
        self._ended = ended
        self._inputs = [self._held(value) for value in inputs]
        self._modules = {id(own): number for number, own in enumerate(module.modules())}
        self._parameters = {id(own): number for number, own in enumerate(module.parameters())}
        self._tensors = [own for own in (*inputs, *_tensors_of(module)) if isinstance(own, Tensor)]
        self._versions = [own._version for own in self._tensors]
        self._stream = self._gpu.current.number
        self._begin_node = torch._C._autograd._get_sequence_nr()
        self._numbers: dict[int, int] = {}
        self._born = 0
        self._handles: list[Any] = []
        self._is_outside = False
        self._gradients: list[tuple[int, Kind]] = []
        self._in_backward = False
        self._begin()

    def deny(self, reason: str) -> None:
        """Note why the block cannot be issued again."""
        self.reason = self.reason or reason

    def _held(self, value: Any) -> tuple[int, HeldStorage | None]:
        """Return the key of the storage of an input, and what is known of it."""
        key = value.untyped_storage()._cdata if isinstance(value, Tensor) else 0
        return key, self._memory.held_by(key)

    # ---------------------------------------------------------------- windows

    def _begin(self) -> None:
        self._issues = [Issue()]
        self._entered: list[int] = []
        self._totals = Totals()
        self._totals.add_times(-1, self._devices.totals)
        self._random = self._devices.random.position
        self._random_of_host = _random_of_host()
        self._boundaries = self._gpu.num_boundaries
        self._arrived = self._memory.scopes.place.backward
        if self._gpu.is_deferring:
            self.deny("a kernel is put together across its border")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to the call while the body runs."""
        self._listen()
        try:
            yield
        finally:
            self._stop()

    def _listen(self) -> None:
        if self._memory.follower is not None:
            self._memory.follower.leave()  # an error has ended a backward pass in the middle
        self._gpu.listeners.append(self._note)
        self._memory.follower = self

    def leave(self) -> None:
        """Listen no more."""
        self._gpu.listeners.remove(self._note)
        self._memory.follower = None

    def _stop(self) -> None:
        self.leave()
        self._close_issue()
        self._totals.add_times(1, self._devices.totals)
        if self._gpu.is_deferring:
            self.deny("a kernel is put together across its border")

    def _close_issue(self) -> None:
        issue = self._issues[-1]
        issue.boundaries, issue.part = self._crossed(), self._gpu.part
        issue.arrived = self._latest(self._memory.scopes.place.backward)

    def _crossed(self) -> int:
        before, self._boundaries = self._boundaries, self._gpu.num_boundaries
        return self._boundaries - before

    def _draws(self) -> int:
        seed, offset, drawn_to = self._devices.random.position
        if (seed, drawn_to) != (self._random[0], self._random[2]):
            self.deny("it seeds the random generator, or draws what is known")
        if self._random_of_host != _random_of_host():
            self.deny("it draws on the CPU")
        return offset - self._random[1]

    # ---------------------------------------------------------------- what is heard

    def _note(self, item: Item) -> None:
        if self._is_elsewhere():
            return
        if isinstance(item, Launch) and item.stream == self._stream and not item.replayed:
            self._issues[-1].items.append((self._crossed(), item))
        elif not isinstance(item, HostWork):
            self.deny(f"it issues a {type(item).__name__}, or on another stream")
        elif item.name != BETWEEN:
            self._issues[-1].items.append((self._crossed(), item))

    def _is_elsewhere(self) -> bool:
        """Return whether a parameter is given its gradient, which a replay does by itself."""
        if not self._is_outside:
            return False
        node = torch._C._current_autograd_node()
        if node is None or _accumulates(node):
            return True
        self._is_outside = False
        self._totals.add_times(-1, self._devices.totals)
        return False

    def born(self, key: int, nbytes: int, operation: object) -> None:
        """Note a storage."""
        if self._is_elsewhere():
            self._numbers[key] = _ELSEWHERE
            return
        self._numbers[key] = self._born
        running, arrived = self._memory.scopes.place
        running = None if running is None else self._within(running)
        self._issues[-1].storages.append(Birth(self._born, nbytes, operation, running, self._latest(arrived)))
        self._born += 1

    def died(self, key: int) -> None:
        """Note that a storage is gone."""
        number = self._numbers.pop(key, None)
        if number is None:
            self.deny("the last reference to what it has not made is gone")
        elif number != _ELSEWHERE:
            self._issues[-1].storages.append(number)

    def changed(self) -> None:
        """Note that a storage is resized, or used on another stream."""
        self.deny("it resizes memory, or uses it on another stream")

    def entered(self, module: nn.Module) -> None:
        """Note that a module is called."""
        self._entered.append(self._modules.get(id(module), -1))
        if self._entered[-1] < 0:
            self.deny("it calls a module that is not one of its own")

    def _within(self, name: str) -> str:
        """Return a module's name within the block."""
        if name != self._prefix and not name.startswith(f"{self._prefix}."):
            self.deny(f"it is at work for {name or 'no module'}")
        return name.removeprefix(self._prefix)

    def _latest(self, name: str) -> str | None:
        """Return the same of the module of a gradient; None for that which has come before the block's."""
        return None if name == self._arrived else self._within(name)

    # ---------------------------------------------------------------- the call

    def returned(self, outputs: Sequence[Any], inputs: Sequence[Any], module: nn.Module) -> None:
        """Note that the call has come to its end, with leaves of what it returns."""
        wanting = [number for number, own in enumerate(outputs) if _wants_gradient(own)]
        kinds = tuple(self._output(own, inputs) for own in outputs)
        if len(wanting) > 1:
            self.deny("several of its outputs want gradients")
        issue, totals = self._issues[0], self._totals
        differentiable = wanting[0] if wanting else None
        if self._versions != [own._version for own in self._tensors]:
            self.deny("it changes an input, a parameter or a buffer")
        self._tensors.clear()
        self.forward = Forward(
            issue, kinds, differentiable, len(inputs), tuple(self._entered), totals, self._draws()
        )
        self._given = self.forward.given()
        self._alive = {
            key: self._memory.held_by(key) for key, number in self._numbers.items() if number != _ELSEWHERE
        }
        if differentiable is None:
            self._deny_left(self._given)
            self._ended(self)
        elif not self.reason:
            self._follow(outputs[differentiable], inputs, module)
        if self.reason and differentiable is not None:
            self._drop()

    def _output(self, own: Any, inputs: Sequence[Any]) -> Kind | int:
        for number, value in enumerate(inputs):
            if own is value and isinstance(own, Tensor):
                return -1 - number
        kind = self._kind(own)
        if kind is None:
            self.deny("an output is no tensor that it has made")
            return 0
        return kind

    def _kind(self, tensor: Any) -> Kind | None:
        """Return what a tensor is like whose storage was made while listening; None if it was not."""
        if type(tensor) is not FakeTensor or value_of(tensor) is not None:
            return None
        number = self._numbers.get(tensor.untyped_storage()._cdata, _ELSEWHERE)
        kind = kind_anywhere(tensor)
        return None if kind is None or number < 0 else Kind(kind, number)

    def _follow(self, output: Tensor, inputs: Sequence[Any], module: nn.Module) -> None:
        """Listen to the backward pass when it comes to the block, and see that nothing else comes between."""
        wanting = [own for own in inputs if _wants_gradient(own)]
        ends = {own.grad_fn for own in wanting}
        end = next(iter(ends), None)
        if len(ends) != 1 or end is None or type(end).__name__ != HANDED_OVER:
            self.deny("its inputs are not its own")
            return
        edges = self._edges(output.grad_fn, end)
        parameters = [own for own in module.parameters() if own.requires_grad]
        reached = {id(node.variable): count for (node, _), count in edges.items() if _accumulates(node)}
        if reached != {id(own): 1 for own in parameters}:
            self.deny("a parameter gets no gradient, or several, or another tensor gets one")
        if self.reason or output.grad_fn is None:
            return
        self._num_wanted = len(parameters)
        self._positions = {own.output_nr: number for number, own in enumerate(inputs) if _wants_gradient(own)}
        self._handles = [output.grad_fn.register_prehook(self._begins), end.register_prehook(self._ends)]
        for own in parameters:
            number = self._parameters[id(own)]
            self._handles.append(own.register_hook(partial(self._arrives, number)))

    def _edges(self, first: Any, end: Any) -> Counter[tuple[Any, int]]:
        """Return how many gradients come to each node within the block, from *first* to *end*."""
        edges: Counter[tuple[Any, int]] = Counter()
        pending, seen = [first], {first, end}
        while pending:
            node = pending.pop()
            if node._sequence_nr() < self._begin_node:
                self.deny("it uses what has been computed outside of it, and wants a gradient")
            for following, number in node.next_functions:
                if following is None:
                    continue
                edges[following, number] += 1
                if following not in seen:
                    seen.add(following)
                    if not _accumulates(following):
                        pending.append(following)
        return edges

    def _deny_left(self, given: set[int]) -> None:
        """See that nothing is left of what it has made but what it has *given*."""
        if {number for number in self._numbers.values() if number >= 0} - given:
            self.deny("what it has made outlives it")

    # ---------------------------------------------------------------- the backward pass

    def _begins(self, gradients: Sequence[Tensor | None]) -> None:
        """Listen from now on: the gradient of the output is there."""
        if self._in_backward or torch.is_grad_enabled():
            self.deny("it is gone back through twice")
        if self.reason:
            self._drop()
            return
        self._in_backward = True
        survivors, self._numbers = self._numbers, {}
        for key, number in survivors.items():
            if self._memory.held_by(key) is self._alive[key]:
                self._numbers[key] = number
            elif number not in self._given:
                self.deny("what it has kept is gone before its backward pass")
        for number, (key, held) in enumerate(self._inputs):
            if held is not None and self._memory.held_by(key) is held:
                self._numbers[key] = -1 - number
        gradient = next((own for own in gradients if own is not None), None)
        if gradient is not None:
            self._numbers.setdefault(gradient.untyped_storage()._cdata, -1 - len(self._inputs))
        self._begin()
        self._listen()

    def _arrives(self, number: int, gradient: Tensor) -> None:
        """Note the gradient of a parameter."""
        if not self._in_backward or self.backward is not None:
            self.deny("a gradient comes from elsewhere")
            return
        if not self._is_elsewhere():
            self._totals.add_times(1, self._devices.totals)
            self._is_outside = True
        kind = self._kind(gradient)
        if kind is None:
            self.deny("a gradient is no tensor that it has made")
            return
        births = (own for own in self._issues[-1].storages if isinstance(own, Birth))
        if any(own.number == kind.storage and own.operation is _SUM for own in births):
            self.deny("a gradient is added to one that comes from elsewhere")
        self._gradients.append((number, kind))
        self._close_issue()
        self._issues.append(Issue())

    def _ends(self, gradients: Sequence[Tensor | None]) -> None:
        """Note that the inputs have their gradients."""
        if not self._in_backward:
            return
        if self._is_outside:
            self._is_outside = False
            self._totals.add_times(-1, self._devices.totals)
        self._stop()
        of_inputs = []
        for position, gradient in enumerate(gradients):
            kind = None if gradient is None else self._kind(gradient)
            if kind is None or position not in self._positions:
                self.deny("an input gets no gradient that it has made")
            else:
                of_inputs.append((self._positions[position], kind))
        given = {kind.storage for _, kind in (*self._gradients, *of_inputs)}
        for issue in self._issues:
            issue.storages = [own for own in issue.storages if own not in given]
        self._deny_left(given | self._given)
        if len(self._gradients) != self._num_wanted:
            self.deny("its backward pass is for some of its gradients alone")
        self.backward = Backward(
            tuple(self._issues),
            tuple(self._gradients),
            tuple(of_inputs),
            self._totals,
            self._draws(),
        )
        self._drop()

    def _drop(self) -> None:
        """Listen no more, and tell that all is known."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._ended(self)


def _accumulates(node: Any) -> bool:
    """Return whether a node of autograd's graph gives a leaf its gradient."""
    return type(node).__name__ == "AccumulateGrad"


def _random_of_host() -> bytes:
    return torch.default_generator.get_state().numpy().tobytes()


def _tensors_of(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _wants_gradient(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad
