"""A bucket as communication hooks see it: the interface of ``torch.distributed.GradBucket``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch.nn import Parameter


class GradBucket:
    """The gradients of one bucket, not divided by anything.

    Args:
        index: of the bucket, in the order in which they are reduced.
        is_last: whether it is the last one of the pass.
        buffer: its gradients, flat; or the one sparse gradient.
        parameters: the members, in the order in which they lie in the buffer.
    """

    def __init__(
        self, index: int, is_last: bool, buffer: torch.Tensor, parameters: Sequence[Parameter]
    ) -> None:
        self._index = index
        self._is_last = is_last
        self._buffer = buffer
        self._parameters = parameters

    def index(self) -> int:
        """Return the index of the bucket: they are reduced in this order."""
        return self._index

    def is_last(self) -> bool:
        """Return whether this is the last bucket of the pass."""
        return self._is_last

    def buffer(self) -> torch.Tensor:
        """Return the flat tensor of all gradients; what is done to it in place is seen."""
        return self._buffer

    def set_buffer(self, buffer: torch.Tensor) -> None:
        """Replace the flat tensor; it may be of another dtype."""
        self._buffer = buffer

    def gradients(self) -> list[torch.Tensor]:
        """Return a view of the buffer for each parameter, in its shape."""
        if self._buffer.layout is not torch.strided:
            return [self._buffer]
        sizes = [parameter.numel() for parameter in self._parameters]
        ends = accumulate(sizes)
        return [
            self._buffer[end - size : end].view(parameter.shape)
            for parameter, size, end in zip(self._parameters, sizes, ends, strict=True)
        ]

    def parameters(self) -> list[torch.Tensor]:
        """Return the parameters of the bucket."""
        return list(self._parameters)
