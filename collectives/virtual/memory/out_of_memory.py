"""Error of a device whose memory does not suffice: it reads like CUDA's, and names what is held."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import torch

from collectives.virtual.memory.caching_allocator import CachingAllocator

_NUM_MODULES = 3


def out_of_memory(
    nbytes: int,
    capacity: int,
    index: int,
    allocator: CachingAllocator,
    categories: Mapping[str, int],
    modules: Mapping[str, int],
) -> torch.OutOfMemoryError:
    """Return the error.

    Args:
        nbytes: that the device was asked for.
        capacity: of the device, in bytes.
        index: of the device.
        allocator: as it stands.
        categories: what is held, in bytes by category.
        modules: the same by module, most first.
    """
    reserved, allocated = allocator.reserved, allocator.allocated
    held = ", ".join(f"{key.replace('_', ' ')} {binary(size)}" for key, size in categories.items() if size)
    most = ", ".join(f"{name} {binary(size)}" for name, size in islice(modules.items(), _NUM_MODULES))
    return torch.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {binary(nbytes)}. "
        f"GPU {index} has a total capacity of {binary(capacity)} of which "
        f"{binary(max(0, capacity - reserved))} is free. "
        f"Of the allocated memory {binary(allocated)} is allocated by PyTorch, and "
        f"{binary(reserved - allocated)} is reserved by PyTorch but unallocated. "
        "If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation. "
        f"Held are: {held or 'nothing'}; most by: {most or 'nothing'}."
    )


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether *error*, or what has led to it, is that a device's memory did not suffice."""
    while error is not None and not isinstance(error, torch.OutOfMemoryError):
        error = error.__cause__ or error.__context__
    return error is not None


def binary(nbytes: int) -> str:
    """Return bytes as CUDA's allocator writes them, such as ``1.50 GiB``."""
    if nbytes <= 2**10:
        return f"{nbytes} bytes"
    for unit, size in (("KiB", 2**10), ("MiB", 2**20)):
        if nbytes <= size * 2**10:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes / 2**30:.2f} GiB"
