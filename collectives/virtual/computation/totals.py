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
    _kinds: Counter[Arithmetic] = field(default_factory=Counter)
    _kinds_before: Counter[Arithmetic] = field(default_factory=Counter)

    def add(self, flops: int, nbytes: int, dtype: str = "", part: str = "", unmodelled: str = "") -> None:
        """Add an operation."""
        if unmodelled:
            self.unmodelled[unmodelled] += 1
        self.operations += 1
        self.flops += flops
        self.nbytes += nbytes
        if flops:
            self._kinds[Arithmetic(part, dtype)] += flops

    def end_iteration(self, finished: int) -> None:
        """Note that *finished* iterations are over; it is 1 again where those before count no more."""
        del self.iterations[finished - 1 :]
        self.iterations.append(dict(self._kinds - self._kinds_before))
        self._kinds_before = Counter(self._kinds)

    def add_times(self, times: int, other: Totals) -> None:
        """Add what *other* has so many *times*, or take it away (-1); iterations stay as they are."""
        self.operations += times * other.operations
        self.flops += times * other.flops
        self.nbytes += times * other.nbytes
        for name, calls in other.unmodelled.items():
            self.unmodelled[name] += times * calls
        for kind, flops in other._kinds.items():
            self._kinds[kind] += times * flops
