"""Totals of what a rank has computed, and what part of a device's peak they make up.

Model FLOPs are three times those of the forward passes with gradients, as a backward pass has two products
for each; what is computed again for checkpointed activations does not count (Chowdhery et al., "PaLM",
arXiv:2204.02311, appendix B).  MFU is the part of the peak that they would take alone; HFU the same of all
FLOPs that are carried out.  Counted are products, convolutions and attention, as torch counts them: a
multiplication and an addition are two, and a causal mask leaves nothing out.  Where an iteration computes in
several types, each counts at its own peak.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import asdict, dataclass, field
from statistics import fmean, median
from typing import Any, NamedTuple

from sim.hardware import Device


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


BACKWARD_PER_FORWARD = 2
"""Arithmetic of a backward pass, by that of its forward pass."""

FORWARD = ("forward",)
"""Parts of an iteration whose arithmetic is that of the model."""


@dataclass(frozen=True)
class Utilization:
    """What part of its peak a device makes of an iteration, on the mean over all ranks.

    Attributes:
        mfu: model FLOPs, as a part of what the device could have done.
        hfu: all FLOPs, likewise.
        model_flops: of an iteration, in FLOPs for each rank.
        flops: all of an iteration, likewise.
        peak_flops: of the device, in FLOP/s, in the type in which it computes most.
        dtype: that type.
    """

    mfu: float
    hfu: float
    model_flops: int
    flops: int
    peak_flops: int
    dtype: str

    @classmethod
    def of(
        cls,
        totals: Mapping[int, Totals],
        members: Mapping[int, int],
        device: Device,
        seconds: float | None,
    ) -> Utilization | None:
        """Return that of the steady iterations, or None if there is none or nothing is computed.

        Args:
            totals: of the ranks that have a thread.
            members: for how many ranks each of them stands.
            device: of all ranks.
            seconds: that a steady iteration takes.
        """
        steady = {rank: totals[rank].iterations[1:] for rank in members if rank in totals}
        if not seconds or not steady or not all(steady.values()):
            return None
        by_type: Counter[str] = Counter()
        for iterations in steady.values():
            by_type.update(_by_type(iterations[-1]))
        if not by_type:
            return None

        def mean(value: Callable[[Mapping[str, int]], float], parts: Container[str] | None = None) -> float:
            each = [
                median(value(_by_type(own, parts)) for own in iterations) for iterations in steady.values()
            ]
            return fmean(each, [members[rank] for rank in steady])

        def ideal(flops: Mapping[str, int]) -> float:
            return sum(amount / _peak(device, dtype) for dtype, amount in flops.items())

        factor = 1 + BACKWARD_PER_FORWARD
        dtype = max(by_type, key=lambda name: by_type[name])
        return cls(
            mfu=factor * mean(ideal, FORWARD) / seconds,
            hfu=mean(ideal) / seconds,
            model_flops=round(factor * mean(_sum, FORWARD)),
            flops=round(mean(_sum)),
            peak_flops=_peak(device, dtype),
            dtype=dtype,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as JSON types."""
        return asdict(self)


def _by_type(flops: Mapping[Arithmetic, int], parts: Container[str] | None = None) -> Mapping[str, int]:
    """Return FLOPs by type, of these parts of an iteration or of all."""
    result: Counter[str] = Counter()
    for kind, amount in flops.items():
        if parts is None or kind.part in parts:
            result[kind.dtype] += amount
    return result


def _sum(flops: Mapping[str, int]) -> float:
    return sum(flops.values())


def _peak(device: Device, dtype: str) -> int:
    """Return what the device's vendor states, or what it reaches where that is not known."""
    return device.peaks.get(dtype) or device.rates[dtype]
