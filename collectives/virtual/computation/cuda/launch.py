"""Kernel launches: what one operation puts on a stream."""

from __future__ import annotations

from typing import NamedTuple


class KernelLaunch(NamedTuple):
    """One kernel.

    Attributes:
        name: of torch's operation, without its overload.
        duration_ps: from its begin to its end on a device that does nothing else.
        flops: of arithmetic, a multiplication and an addition each one, as torch counts them.
        nbytes: read and written.
        dtype: in which the device computes, by the names of its rates; empty where there are no flops.
        unmodelled: the full name of an operation whose cost has no formula and whose bytes do not bound it.
    """

    name: str
    duration_ps: int
    flops: int
    nbytes: int
    dtype: str = ""
    unmodelled: str = ""
