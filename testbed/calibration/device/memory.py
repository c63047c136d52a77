"""Memory that a process keeps: without it, what the system takes to map fresh pages is in every timing.

The C library gives large blocks back to the system when they are freed, and each step of a training gets
fresh pages for them, which a virtual machine may take longer to map than a kernel to write.  How often that
happens depends on the order of all allocations.  Training on processors is therefore run with an allocator
that keeps memory (torch's tuning guide names jemalloc and tcmalloc); here the C library is told to keep it.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_NEVER = 2**31 - 1


def keep_memory() -> bool:
    """Let this process keep the memory that it frees, until it ends; return whether the C library can."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, 2**30) and mallopt(_TRIM_THRESHOLD, _NEVER))
