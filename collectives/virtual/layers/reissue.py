"""Blocks that are issued again from a record: their operations are not dispatched, their gradients are real.

For autograd a block is a chain of functions: one for the gradient of the output, one for each of a
parameter, and one for those of the inputs.  Each issues what the record has up to its gradient, and returns a
new virtual tensor as that.  So parameters get their gradients where they got them in the record, and whatever
torch or a script has hooked there runs as before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from collectives.virtual.gpu.accelerator import CudaDevices
from collectives.virtual.gpu.shapes import Likeness
from collectives.virtual.layers.record import Backward, Forward, Issue, Kind
from collectives.virtual.layers.reissued import UnrecordedReturnError
from collectives.virtual.memory.module_scopes import Place
from collectives.virtual.streams.gpu import Gpu

_META = torch.device("meta")


class Reissue:
    """One call of a block that is issued from a record, and its backward pass.

    Args:
        devices: of the rank.
        gpu: that of the devices on which it computes.
        likeness: what makes virtual tensors.
        module: the block.
        forward: what a call issues.
        backward: what its backward pass issues; None where there is none.
    """

    def __init__(
        self,
        devices: CudaDevices,
        gpu: Gpu,
        likeness: Likeness,
        module: nn.Module,
        forward: Forward,
        backward: Backward | None,
    ) -> None:
        self._devices, self._gpu, self._memory = devices, gpu, devices.memory
        self._likeness = likeness
        self._device = torch.device("cuda", devices.index)
        self._module, self._forward, self._backward = module, forward, backward
        self._prefix = self._memory.scopes.name_of(module)
        self._stream = self._gpu.current.number
        self._held: dict[int, object] = {}
        self._given: set[int] = set()
        self._reached = 0
        self._arrived = self._memory.scopes.place.backward

    def call(self, inputs: Sequence[Any]) -> list[Any]:
        """Issue a call, given leaves of its arguments; return leaves of what it returns."""
        forward, backward = self._forward, self._backward
        modules = tuple(self._module.modules())
        for number in forward.entered:
            self._memory.own(modules[number])
        self._given = forward.given()
        self._issue(forward.issue)
        self._count(forward)
        outputs: list[Any] = [
            self._made(own) if isinstance(own, Kind) else inputs[-1 - own]
            for number, own in enumerate(forward.outputs)
            if number != forward.differentiable
        ]
        if forward.differentiable is not None and backward is not None:
            wanting = [own for own in inputs if isinstance(own, Tensor) and own.requires_grad]
            outputs.insert(forward.differentiable, self._chain(backward, wanting))
            kept = {*backward.deaths()}
            for number, own in enumerate(inputs):
                if -1 - number in kept:
                    self._held[-1 - number] = own.untyped_storage()
            self._given -= kept
        for number in self._given:
            self._held.pop(number)
        return outputs

    def _chain(self, backward: Backward, inputs: Sequence[Tensor]) -> Tensor:
        """Return the output, with the functions that go back."""
        parameters = tuple(self._module.parameters())
        last = len(backward.gradients)
        reached = _apply(self, last + 1, *inputs)
        for step in range(last, 0, -1):
            reached = _apply(self, step, reached, parameters[backward.gradients[step - 1][0]])
        return _apply(self, 0, reached)

    def result(self, step: int) -> Tensor:
        """Return what the function of a step gives: the first to go back the output, others nothing."""
        if step:
            with torch._C._DisableTorchDispatch():
                return torch.empty(0)
        own = self._forward.outputs[self._forward.differentiable or 0]
        assert isinstance(own, Kind)
        return self._made(own)

    def go_back(self, step: int, node: Any, gradient: Tensor | None) -> list[Tensor | None]:
        """Issue the backward pass up to the gradients of a step, and return these.

        The first step takes the gradient of the output: what goes back through a function holds it meanwhile.

        Raises:
            NotSupportedError: it does not go back as in the record.
        """
        backward = self._backward
        assert backward is not None
        if step != self._reached or torch.is_grad_enabled() or self._gpu.current.number != self._stream:
            _refuse("twice, for gradients of gradients, or on another stream")
        if not all(
            torch._C._will_engine_execute_node(own) for own, _ in node.next_functions if own is not None
        ):
            _refuse("for some of its gradients alone")
        self._reached += 1
        if not step:
            number = -1 - self._forward.num_inputs
            if gradient is not None and number in backward.deaths():
                self._held[number] = gradient.untyped_storage()
            self._arrived = self._memory.scopes.place.backward
            self._given = {kind.storage for _, kind in (*backward.gradients, *backward.of_inputs)}
            return [None]
        self._issue(backward.issues[step - 1])
        if step <= len(backward.gradients):
            return [None, self._gradient(backward.gradients[step - 1][1])]
        self._count(backward)
        return [self._gradient(kind) for _, kind in backward.of_inputs]

    def _gradient(self, kind: Kind) -> Tensor:
        made = self._made(kind)
        self._held.pop(kind.storage)
        return made

    def _made(self, kind: Kind) -> Tensor:
        with torch.no_grad(), torch._C._DisableTorchDispatch():
            return self._likeness.on(self._held[kind.storage], kind.kind, self._device)

    def _issue(self, issue: Issue) -> None:
        memory, held, prefix = self._memory, self._held, self._prefix
        with memory.scopes.elsewhere():
            for own in issue.storages:
                if isinstance(own, int):
                    held.pop(own, None)
                    continue
                number, nbytes, operation, running, arrived = own
                memory.scopes.be_at(
                    Place(
                        None if running is None else prefix + running,
                        self._arrived if arrived is None else prefix + arrived,
                    )
                )
                if number in self._given:
                    with torch._C._DisableTorchDispatch():
                        held[number] = storage = torch.UntypedStorage(nbytes, device=_META)
                    memory.follow(storage, storage._cdata, nbytes, operation)
                else:
                    held[number] = memory.hold(nbytes, operation)
        if issue.arrived is not None:
            memory.scopes.arrive(prefix + issue.arrived)
        self._gpu.issue_again(issue.items, issue.boundaries)
        self._gpu.part = issue.part

    def _count(self, record: Forward | Backward) -> None:
        self._devices.totals.add_times(1, record.totals)
        self._devices.random.move_on(record.draws)


class _Gradients(Function):
    """One step of a block that goes back; no boundary that a script has."""

    is_boundary = False

    @staticmethod
    def forward(ctx: Any, call: Reissue, step: int, *following: Tensor) -> Tensor:
        ctx.call, ctx.step = call, step
        ctx.set_materialize_grads(False)
        return call.result(step)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None) -> Any:
        return None, None, *ctx.call.go_back(ctx.step, ctx, gradient)


_apply: Callable[..., Tensor] = _Gradients.apply
vars(_Gradients)["_backward_cls"].is_boundary = False


def _refuse(how: str) -> None:
    raise UnrecordedReturnError(
        f"a block that was issued again from a record is gone back through {how}: run every layer by itself "
        "(--every-layer, every_layer=True)"
    )
