"""Constants of matrix products: how near the kernels of one type come to a device's peaks, by their shape.

A product is cut into tiles of its result, which the multiprocessors take in waves.  `ProductConstants` says
what the largest tile (256 × 256) reaches, how much less smaller ones do, how many steps of depth a tile's
beginning and end take, and how nearly a last wave that is not full takes as long as a full one.  What is
made of them: `collectives.virtual.computation.cuda.products`.

A board is cool when a kernel begins, and its clocks fall as it warms and its power reaches the limit.  So
there are three rates.  A *burst* is a short run: the rate of the first moments, and what a kernel of a
millisecond has lost by its end.  *Steady* is the same kernel again and again for a second.  *Training* is
what products reach between all other work of a training step, with its operands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Clocks: TypeAlias = Literal["burst", "steady", "training"]

POWER_EXPONENT = 1 / 3
"""By what power of its limit a board's sustained rates fall, as dynamic power is about the cube of the clock:
an assumption, which an H100 limited to 500 W of 700 bears out (0.89)."""


def usual_small(dtype: str) -> float:
    """Return by how much smaller tiles do less where nothing was fitted.

    On tensor cores as on an A100, rounded; without them small tiles reach what large ones do.
    """
    return 0.0 if dtype in ("float64", "float32") else 20.0


@dataclass(frozen=True)
class ProductConstants:
    """How products of one type run on a device.

    Attributes:
        burst: operations per second of the largest tiles in the first moments of a short run.
        steady: the same after a second of the same kernel.
        training: the same in a training step.
        load: what a burst of a millisecond or more takes longer than its first moments say, as a part.
        small: by how much smaller tiles do less: a tile of m × n has 1 / (1 + small (1/m + 1/n)).
        edge: steps of depth that a tile's beginning and end take.
        wave: how far a last wave that is not full takes as long as a full one: 1 all of it, 0 its part.
        bandwidth: bytes per second at which operands and results cross the memory.
        launch_ps: of a kernel, in picoseconds.
    """

    burst: float
    steady: float
    training: float
    bandwidth: int
    launch_ps: int = 0
    load: float = 0.0
    small: float = 0.0
    edge: float = 128.0
    wave: float = 1.0

    def rate(self, clocks: Clocks) -> float:
        """Return the operations per second of the largest tiles."""
        return {"burst": self.burst, "steady": self.steady, "training": self.training}[clocks]

    def limited(self, part: float) -> ProductConstants:
        """Return these on a board that may take this *part* of its power: no burst is slower."""
        kept = part**POWER_EXPONENT
        return replace(self, steady=self.steady * kept, training=self.training * kept)
