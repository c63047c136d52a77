"""Constants of fused attention: what a family of kernels reaches on a device.

A call takes its floor, its arithmetic and its operands' way through memory, one after the other: the kernels
that were measured hide neither behind the other.  How the arithmetic is counted:
`collectives.virtual.computation.cuda.attention`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import log2


@dataclass(frozen=True)
class AttentionRates:
    """What a family of fused attention kernels reaches.

    Attributes:
        forward: part of the peak of the type that its matrix products reach; causal work counted once.
        backward: the same of its backward pass, whose arithmetic is 2.5 times that of the forward pass.
        heads: part of that which heads of a dimension reach, by the dimension, ascending; between two of
            them the logarithm is linear in the logarithm of the dimension, beyond them it is the nearest's.
            Empty: all of it.
        edge: keys more that each query costs, for tiles that are computed and masked, and their beginnings.
        memory: part of the memory's bandwidth at which operands and results cross it besides the arithmetic;
            None: they do so under it, at the bandwidth that kernels reach.
        floor_ps: of a call, in picoseconds; None: a launch of the device.
    """

    forward: float
    backward: float
    heads: Mapping[int, float] = field(default_factory=dict)
    edge: float | None = None
    memory: float | None = None
    floor_ps: int | None = None

    def of_head(self, dimension: int) -> float:
        """Return the part that heads of *dimension* reach."""
        known = list(self.heads.items())
        if not known:
            return 1.0
        if dimension <= known[0][0]:
            return known[0][1]
        for (low, below), (high, above) in pairwise(known):
            if dimension <= high:
                way = log2(dimension / low) / log2(high / low)
                return float(below * 2.0 ** (way * log2(above / below)))
        return known[-1][1]
