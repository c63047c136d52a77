"""Device: how fast a rank computes.

A roofline (Williams, Waterman and Patterson, CACM 52(4), 2009): an operation takes as long as
its arithmetic at the rate of its type, or as its bytes at the bandwidth of the memory, whichever is longer;
and a fixed time to launch it.  How near real kernels come to the peaks is stated as an efficiency: one for
each type and one for memory, and where kernels were measured, a table for each kind of kernel
(`sim.hardware.kernels`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sim.hardware.kernels import KernelTable
from sim.units import SECOND


@dataclass(frozen=True)
class Device:
    """What one rank computes on.

    Attributes:
        name: of the device.
        rates: operations per second that matrix products reach, by type: ``float64``, ``float32``,
            ``tfloat32``, ``bfloat16``, ``float16``, ``float8``; only those that the device has.
        memory_bandwidth: bytes per second that kernels reach, reads and writes together.
        launch_ps: what every operation takes besides, in picoseconds.
        description: what it is, in a line.
        source: where the numbers are from.
        kernels: rates by shape, by kind of kernel and type; kinds that are not there follow the rest.
    """

    name: str
    rates: Mapping[str, int]
    memory_bandwidth: int
    launch_ps: int = 0
    description: str = ""
    source: str = ""
    kernels: Mapping[tuple[str, str], KernelTable] = field(default_factory=dict)

    def duration_ps(self, operations: int, nbytes: int, dtype: str) -> int:
        """Return how long an operation takes whose kind was not measured, in picoseconds, rounded up once.

        Args:
            operations: of arithmetic, a multiplication and an addition each one.
            nbytes: read and written.
            dtype: at whose rate it computes; need be in `rates` only where there are operations.

        Raises:
            KeyError: the device has no rate for *dtype*.
        """
        moving = -(-nbytes * SECOND // self.memory_bandwidth)
        if not operations:
            return moving + self.launch_ps
        return max(-(-operations * SECOND // self.rates[dtype]), moving) + self.launch_ps
