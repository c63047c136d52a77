"""Operands of measured kernels: parts of a pool too large for the caches next to the processor.

A step of a training finds its weights, and what its forward pass kept, in memory rather than in a cache.  So
each call gets the next part of the pool.
"""

from __future__ import annotations

from math import prod

import torch

POOL_BYTES = 128 * 2**20


class Operands:
    """Tensors of one type on one device, filled with numbers between 0.1 and 1.1, all different.

    Args:
        dtype: of the tensors.
        device: on which they are.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype = dtype
        self.device = device
        values = torch.rand(POOL_BYTES // dtype.itemsize, device=device, dtype=torch.float32)
        self._read = values.add_(0.1).to(dtype)
        self._written = self._read.clone()
        self._begin = 0

    def __call__(self, *shape: int, written: bool = False) -> torch.Tensor:
        """Return a contiguous tensor of this *shape*; after some calls the same memory again.

        Args:
            shape: of the tensor.
            written: it will be changed, and so must not be one that others read: some kernels are faster
                where all numbers are alike.
        """
        numel, pool = prod(shape), self._written if written else self._read
        if numel > pool.numel() // 4:
            return torch.full(shape, 0.5, dtype=self.dtype, device=self.device)
        if self._begin + numel > pool.numel():
            self._begin = 0
        part = pool[self._begin : self._begin + numel]
        self._begin += -(-numel // 64) * 64
        return part.view(shape)

    def indices(self, below: int, *shape: int) -> torch.Tensor:
        """Return whole numbers from 0 to *below*."""
        return torch.randint(below, shape, device=self.device)
