"""The memory of a bucket: one flat tensor, and a view of it for each parameter.

A gradient is divided by the world size *while* it is copied in, and the sum is taken afterwards,
as torch does: the division costs no pass of its own, and sums of half-precision numbers stay in range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ddp.errors import NotSupportedError

if TYPE_CHECKING:
    from torch.nn import Parameter


class FlatBucket:
    """Parameters of one dtype and device, with a flat tensor that holds their gradients.

    Args:
        parameters: the members, in the order in which they lie in the flat tensor.
        names: their names, for errors.
        as_view: let ``parameter.grad`` be the view itself, which saves its memory and two copies.
    """

    def __init__(self, parameters: Sequence[Parameter], names: Sequence[str], as_view: bool) -> None:
        self.parameters = tuple(parameters)
        self._names = tuple(names)
        self._as_view = as_view
        first = self.parameters[0]
        numel = sum(parameter.numel() for parameter in self.parameters)
        self.flat = torch.zeros(numel, dtype=first.dtype, device=first.device)
        self.views: list[torch.Tensor] = []
        offset = 0
        for parameter in self.parameters:
            self.views.append(self.flat.as_strided(parameter.shape, _dense_strides(parameter), offset))
            offset += parameter.numel()

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.flat.numel() * self.flat.element_size()

    @property
    def payload(self) -> torch.Tensor:
        """What is reduced: the flat tensor, complex numbers as pairs of real ones."""
        return torch.view_as_real(self.flat) if self.flat.is_complex() else self.flat

    @torch.no_grad()
    def take(self, position: int, scale: float) -> None:
        """Copy the gradient of the parameter at *position* in, multiplied by *scale*.

        Raises:
            NotSupportedError: the gradient is sparse.
        """
        parameter, view = self.parameters[position], self.views[position]
        grad = parameter.grad
        assert grad is not None
        if grad.layout is not torch.strided:
            raise NotSupportedError(
                f"the gradient of {self._names[position]} is sparse, which is not supported yet; "
                "make its layer's gradient dense (sparse=False)"
            )
        if grad.is_set_to(view):
            view.mul_(scale)
        else:
            torch.mul(grad, scale, out=view)
            if self._as_view:
                parameter.grad = view

    @torch.no_grad()
    def give_back(self) -> None:
        """Copy the reduced gradients to where the optimizer finds them."""
        for parameter, view in zip(self.parameters, self.views, strict=True):
            if parameter.grad is None:
                parameter.grad = view if self._as_view else view.clone()
            elif not parameter.grad.is_set_to(view):
                parameter.grad.copy_(view)

    @torch.no_grad()
    def adopt(self) -> None:
        """Let existing gradients, which are views of another bucket, be views of this one."""
        for parameter, view in zip(self.parameters, self.views, strict=True):
            if parameter.grad is not None and self._as_view:
                view.copy_(parameter.grad)
                parameter.grad = view


def _dense_strides(parameter: torch.Tensor) -> tuple[int, ...]:
    """Return the parameter's own strides where it is dense (channels last, for example)."""
    return torch.empty_like(parameter, device="meta", memory_format=torch.preserve_format).stride()
