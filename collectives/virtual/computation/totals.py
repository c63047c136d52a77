"""Totals of what one rank has computed, in all and in each iteration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Arithmetic(NamedTuple):
    """A kind of arithmetic.

    Attributes:
        part: of the iteration, as `collectives.virtual.streams.gpu.Gpu.part` has it.
        dtype: in which the device computes, by the names of its rates.
    """

    part: str
    dtype: str


@dataclass
class Totals:
    """What one rank has computed.

    Attributes:
        operations: that cost something.
        flops: a multiplication and an addition are two.
        nbytes: read and written.
        unmodelled: how often each operation was charged by its bytes though these do not bound it.
        iterations: of each iteration that is over, its FLOPs by kind.
    """

    operations: int = 0
    flops: int = 0
    nbytes: int = 0
    unmodelled: Counter[str] = field(default_factory=Counter)
    iterations: list[Mapping[Arithmetic, int]] = field(default_factory=list)
    _since: Counter[Arithmetic] = field(default_factory=Counter)

    def add(self, flops: int, nbytes: int, dtype: str = "", part: str = "", unmodelled: str = "") -> None:
        """Add an operation."""
        if unmodelled:
            self.unmodelled[unmodelled] += 1
        self.operations += 1
        self.flops += flops
        self.nbytes += nbytes
        if flops:
            self._since[Arithmetic(part, dtype)] += flops

    def end_iteration(self, finished: int) -> None:
        """Note that *finished* iterations are over; it is 1 again where those before count no more."""
        del self.iterations[finished - 1 :]
        self.iterations.append(dict(self._since))
        self._since.clear()
