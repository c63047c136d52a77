"""Utilization of a device by a training: what part of its peak the arithmetic of an iteration makes up.

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
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from collectives.virtual.computation.totals import Arithmetic, Totals
from sim.hardware import Device

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
