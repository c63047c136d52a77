"""The memory of a bucket: one flat tensor, and a view of it for each parameter.

A gradient is divided *while* it is copied in, and the sum is taken afterwards, as torch does: the
division costs no pass of its own, and sums of half-precision numbers stay in range.

Copying each gradient as it becomes ready costs one small call per parameter; copying all of them
when the bucket is complete costs one call (``_foreach_copy_``), but the gradients may have left the
cache by then.  So a bucket of small gradients waits, and one of large gradients does not.  Both
ways give the same bits.  Torch waits where ``batched_grad_copy`` asks for it, and then divides the
whole bucket instead of multiplying by the reciprocal; so does this, if it is asked for.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from itertools import compress
from typing import TYPE_CHECKING, ClassVar

import torch

from ddp.errors import NotSupportedError

if TYPE_CHECKING:
    from torch.nn import Parameter

    from collectives.communicators.communicator import Communicator
    from collectives.execution.work import Work

Zeros = Callable[[int, torch.dtype, torch.device], torch.Tensor]

SMALL_BYTES = 2**14
"""Gradients of fewer bytes on average are copied together."""


class FlatBucket:
    """Parameters of one dtype and device, with a flat tensor that holds their gradients.

    Args:
        parameters: the members, in the order in which they lie in the flat tensor.
        names: their names, for errors.
        zeros: returns memory: as `collectives.communicators.communicator.Communicator.zeros`.
        as_view: let ``parameter.grad`` be the view itself, which saves its memory and two copies.
        batched: copy all gradients when the bucket is complete, whatever their size.
        multiple_of: pad the flat tensor with zeros to a multiple of so many elements.

    Attributes:
        waits: whether gradients are copied together, when the bucket is complete.
        is_view: whether gradients are views of the flat tensor.
    """

    _warned: ClassVar[bool] = False

    def __init__(
        self,
        parameters: Sequence[Parameter],
        names: Sequence[str],
        zeros: Zeros,
        as_view: bool,
        batched: bool = False,
        multiple_of: int = 1,
    ) -> None:
        self.parameters = tuple(parameters)
        self._names = tuple(names)
        self.is_view = as_view
        self._batched = batched
        first = self.parameters[0]
        numel = sum(parameter.numel() for parameter in self.parameters)
        numel += -numel % multiple_of
        self.flat = zeros(numel, first.dtype, first.device)
        self.views: list[torch.Tensor] = []
        offset = 0
        for parameter in self.parameters:
            self.views.append(self.flat.as_strided(parameter.shape, _dense_strides(parameter), offset))
            offset += parameter.numel()
        self.waits = batched or (not as_view and self.nbytes < SMALL_BYTES * len(self.parameters))
        self._divisor = 1
        self._deferred: dict[int, torch.Tensor] = {}

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.flat.numel() * self.flat.element_size()

    @property
    def payload(self) -> torch.Tensor:
        """What is reduced, with all gradients copied in; complex numbers as pairs of real ones."""
        flat = self.contents
        return torch.view_as_real(flat) if flat.is_complex() else flat

    @property
    def contents(self) -> torch.Tensor:
        """The flat tensor, with all gradients copied in."""
        if self._deferred:
            self._copy_deferred()
        return self.flat

    @torch.no_grad()
    def accept(self, reduced: torch.Tensor) -> None:
        """Take *reduced*, of any dtype, as the result of the reduction."""
        if not reduced.is_set_to(self.flat):
            self.flat.copy_(reduced.reshape(-1))

    def start(self, communicator: Communicator) -> Work:
        """Start the sum of this bucket over all ranks."""
        return communicator.all_reduce(self.payload, op="sum", async_op=True)

    def take(self, position: int, divisor: int) -> None:
        """Take the gradient of the parameter at *position*, divided; zeros where there is none.

        Raises:
            NotSupportedError: the gradient is sparse.
        """
        grad = self.parameters[position].grad
        if grad is None:
            self.take_nothing(position)
            return
        if grad.layout is not torch.strided:
            raise NotSupportedError(
                f"the gradient of {self._names[position]} is sparse, and its layer is no nn.Embedding or "
                "nn.EmbeddingBag that says so; make it dense (sparse=False)"
            )
        if grad.requires_grad:
            _warn_of_higher_order()
            grad = grad.detach()

        if self.waits:
            self._divisor = divisor
            self._deferred[position] = grad
            return

        view = self.views[position]
        if self.is_view and grad.is_set_to(view):
            if divisor > 1:
                view.div_(divisor)
            return
        torch.mul(grad, 1.0 / divisor, out=view)
        if self.is_view:
            self.parameters[position].grad = view

    def take_all(self, positions: Sequence[int], divisor: int) -> None:
        """Take the gradients of the parameters at *positions*, as `take` takes one."""
        grads = [self.parameters[position].grad for position in positions]
        if self.waits and all(_is_plain(grad) for grad in grads):
            self._divisor = divisor
            self._deferred.update(zip(positions, grads, strict=True))  # type: ignore[arg-type]
        else:
            for position in positions:
                self.take(position, divisor)

    @torch.no_grad()
    def take_nothing(self, position: int) -> None:
        """Take zeros for the parameter at *position*, whatever its gradient."""
        self.views[position].zero_()

    @torch.no_grad()
    def give_back(self, untouched: Collection[int] = ()) -> None:
        """Copy the reduced gradients to where the optimizer finds them, but for those *untouched*."""
        grads, views = [], []
        for position, (parameter, view) in enumerate(zip(self.parameters, self.views, strict=True)):
            if untouched and position in untouched:
                continue
            grad = parameter.grad
            if grad is None:
                parameter.grad = view if self.is_view else view.clone()
            elif not (self.is_view and grad.is_set_to(view)):
                grads.append(grad)
                views.append(view)
        if grads:
            torch._foreach_copy_(grads, views)

    @torch.no_grad()
    def adopt(self) -> None:
        """Let existing gradients, which are views of another bucket, be views of this one."""
        for parameter, view in zip(self.parameters, self.views, strict=True):
            if parameter.grad is not None and self.is_view:
                view.copy_(parameter.grad)
                parameter.grad = view

    def forget(self) -> None:
        """Forget what was taken since the last launch: the pass has been abandoned."""
        self._deferred.clear()

    @torch.no_grad()
    def _copy_deferred(self) -> None:
        views, grads = [self.views[position] for position in self._deferred], [*self._deferred.values()]
        if self.is_view:
            apart = [not grad.is_set_to(view) for grad, view in zip(grads, views, strict=True)]
            views, grads = [*compress(views, apart)], [*compress(grads, apart)]
            for position in compress(self._deferred, apart):
                self.parameters[position].grad = self.views[position]
        if views:
            torch._foreach_copy_(views, grads)
        if self._divisor > 1:
            whole = len(self._deferred) == len(self.parameters)
            parts = [self.flat] if whole else [self.views[position] for position in self._deferred]
            for part in parts:
                part.div_(self._divisor) if self._batched else part.mul_(1.0 / self._divisor)
        self._deferred.clear()


def _is_plain(grad: torch.Tensor | None) -> bool:
    return grad is not None and grad.layout is torch.strided and not grad.requires_grad


def _dense_strides(parameter: torch.Tensor) -> tuple[int, ...]:
    """Return the parameter's own strides where it is dense (channels last, for example)."""
    return torch.empty_like(parameter, device="meta", memory_format=torch.preserve_format).stride()


def _warn_of_higher_order() -> None:
    if FlatBucket._warned:
        return
    FlatBucket._warned = True
    warnings.warn(
        "backward(create_graph=True) through DistributedDataParallel: gradients are averaged over the ranks, "
        "gradients of gradients are not",
        stacklevel=3,
    )
