"""Rates of kernels by shape: how fast a device carries out one kind of kernel, where that was measured.

A kernel takes a launch and then its work (arithmetic or bytes) at a rate that depends on its shape, and on
nothing else: not on what ran before it, nor on where its operands lie.  Between the measured shapes, a grid,
the logarithm of the rate is linear in the logarithm of each size; outside of them the rate is that of the
nearest shape on the grid, which `KernelTable.covers` tells from what was measured.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sim.units import SECOND

Work: TypeAlias = Literal["arithmetic", "bytes"]


@dataclass(frozen=True)
class KernelTable:
    """Measured rates of one kind of kernel in one type.

    Attributes:
        operation: the kind, by the name of torch's operation or of a group of such.
        dtype: in which it computes.
        work: what the rates count: operations of arithmetic, or bytes read and written.
        axes: what makes up a shape, and the sizes that were measured, ascending, at least 1.
        rates: of each shape per second, at least 1; the last axis changes fastest.
        launch_ps: what each kernel takes besides, in picoseconds.

    Raises:
        ValueError: an axis without sizes or not ascending, a rate or size below 1, or more or fewer rates
            than shapes.
    """

    operation: str
    dtype: str
    work: Work
    axes: Mapping[str, tuple[int, ...]]
    rates: tuple[int, ...]
    launch_ps: int = 0

    def __post_init__(self) -> None:
        for name, sizes in self.axes.items():
            if not sizes or sizes[0] < 1 or any(a >= b for a, b in itertools.pairwise(sizes)):
                raise ValueError(f"axis {name}: expected ascending sizes of at least 1, got {list(sizes)}")
        shapes = math.prod(map(len, self.axes.values()))
        if len(self.rates) != shapes:
            raise ValueError(f"expected a rate for each of the {shapes} shapes, got {len(self.rates)}")
        if min(self.rates) < 1:
            raise ValueError("expected rates of at least 1")

    def covers(self, shape: Mapping[str, int]) -> bool:
        """Return whether *shape*, a size for each axis, lies within the measured ones."""
        return all(sizes[0] <= shape[name] <= sizes[-1] for name, sizes in self.axes.items())

    def rate(self, shape: Mapping[str, int]) -> float:
        """Return the rate for *shape*, a size for each axis, per second."""
        corners = [(0, 1.0)]  # positions in the rates, and what each counts
        for name, sizes in self.axes.items():
            low, part = _between(sizes, shape[name])
            corners = [
                (position * len(sizes) + low + above, weight * share)
                for position, weight in corners
                for above, share in ((0, 1 - part), (1, part))
                if share
            ]
        if len(corners) == 1:
            return float(self.rates[corners[0][0]])
        return 2.0 ** sum(weight * math.log2(self.rates[position]) for position, weight in corners)

    def duration_ps(self, work: int, shape: Mapping[str, int]) -> int:
        """Return how long a kernel takes, to the nearest picosecond.

        Args:
            work: operations of arithmetic or bytes, whichever the rates count.
            shape: a size for each axis.
        """
        return round(work * SECOND / self.rate(shape)) + self.launch_ps


def _between(sizes: tuple[int, ...], size: int) -> tuple[int, float]:
    """Return after which of *sizes* one lies, and how far on the way to the next, by logarithms."""
    if size <= sizes[0]:
        return 0, 0.0
    if size >= sizes[-1]:
        return len(sizes) - 1, 0.0
    low = bisect_right(sizes, size) - 1
    return low, math.log2(size / sizes[low]) / math.log2(sizes[low + 1] / sizes[low])
