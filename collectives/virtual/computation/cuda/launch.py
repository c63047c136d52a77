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
    """

    name: str
    duration_ps: int
    flops: int
    nbytes: int
