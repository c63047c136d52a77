"""Memory of measured kernels: a pool of operands too large for caches, and pages that the process keeps.

A step of a training finds its weights, and what its forward pass kept, in memory rather than in a cache.  So
each call gets the next part of the pool.

The C library gives large blocks back to the system when they are freed, and each step of a training gets
fresh pages for them, which a virtual machine may take longer to map than a kernel to write.  How often that
happens depends on the order of all allocations.  Training on processors is therefore run with an allocator
that keeps memory (torch's tuning guide names jemalloc and tcmalloc); here the C library is told to keep it.
"""

from __future__ import annotations

import ctypes
from math import prod

import torch

POOL_BYTES = 128 * 2**20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_NEVER = 2**31 - 1


def keep_memory() -> bool:
    """Let this process keep the memory that it frees, until it ends; return whether the C library can."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, 2**30) and mallopt(_TRIM_THRESHOLD, _NEVER))


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
