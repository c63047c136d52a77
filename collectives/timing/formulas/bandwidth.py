"""Algorithm and bus bandwidth, as nccl-tests defines them.

Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

from collections.abc import Callable

_BUS_FACTOR: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda p: 2 * (p - 1) / p,
    "reduce_scatter": lambda p: (p - 1) / p,
    "all_gather": lambda p: (p - 1) / p,
    "broadcast": lambda p: 1.0,
    "reduce": lambda p: 1.0,
    "gather": lambda p: (p - 1) / p,
    "scatter": lambda p: (p - 1) / p,
    "all_to_all": lambda p: (p - 1) / p,
}


def algbw(nbytes: int, seconds: float) -> float:
    """Return size over time, in bytes/s; 0 where no time passed."""
    return nbytes / seconds if seconds > 0 else 0.0


def busbw(collective: str, nbytes: int, seconds: float, world_size: int) -> float:
    """Return the bandwidth that the busiest link of a ring would show, in bytes/s."""
    return algbw(nbytes, seconds) * _BUS_FACTOR[collective](world_size)
