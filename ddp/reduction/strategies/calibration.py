"""Which two all-reduces a line of costs is drawn through; real and simulated runs use the same."""

from __future__ import annotations

SMALL, LARGE = 4 * 2**10, 4 * 2**20


def calibration_sizes(world_size: int) -> tuple[int, int]:
    """Return the two sizes in bytes: about 4 KiB and 4 MiB, in whole float64 elements for every rank."""
    unit = 8 * world_size
    return -(-SMALL // unit) * unit, -(-max(LARGE, 2 * unit + SMALL) // unit) * unit
