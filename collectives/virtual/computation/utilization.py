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
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from collectives.virtual.computation.cuda.launch import KernelLaunch
from sim.cluster import RankThread, Surroundings
from sim.hardware import Device

BACKWARD_PER_FORWARD = 2
"""Arithmetic of a backward pass, by that of its forward pass."""


@dataclass(frozen=True)
class IterationFlops:
    """What a rank has computed in one iteration, in FLOPs by type.

    Attributes:
        forward: of forward passes with gradients.
        everything: of all.
    """

    forward: Mapping[str, int]
    everything: Mapping[str, int]


class FlopCounter:
    """Counts the arithmetic of one rank.

    Args:
        is_forward: returns whether the rank is in a forward pass with gradients.
    """

    def __init__(self, is_forward: Callable[[], bool]) -> None:
        self.iterations: list[IterationFlops] = []
        self._is_forward = is_forward
        self._forward: Counter[str] = Counter()
        self._everything: Counter[str] = Counter()

    def count(self, launch: KernelLaunch) -> None:
        """Count a kernel that is launched now."""
        if launch.flops:
            self._everything[launch.dtype] += launch.flops
            if self._is_forward():
                self._forward[launch.dtype] += launch.flops

    def end_iteration(self, finished: int) -> None:
        """Note that *finished* iterations are over; after those that count no more it is 1 again."""
        del self.iterations[finished - 1 :]
        self.iterations.append(IterationFlops(dict(self._forward), dict(self._everything)))
        self._forward.clear()
        self._everything.clear()


class FlopCounters:
    """The counters of the ranks of one run."""

    def __init__(self) -> None:
        self.of_ranks: dict[int, FlopCounter] = {}

    @staticmethod
    def of(cluster: Surroundings) -> FlopCounters:
        """Return those of *cluster*, which has none at first."""
        counters: FlopCounters = cluster.shared.setdefault(FlopCounters, FlopCounters())
        return counters

    def on_end(self, rank_thread: RankThread, finished: int) -> None:
        """Note that a rank has finished so many iterations."""
        counter = self.of_ranks.get(rank_thread.rank)
        if counter is not None:
            counter.end_iteration(finished)


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
        counters: Mapping[int, FlopCounter],
        members: Mapping[int, int],
        device: Device,
        seconds: float | None,
    ) -> Utilization | None:
        """Return that of the steady iterations, or None if there is none or nothing is computed.

        Args:
            counters: of the ranks that have a thread.
            members: for how many ranks each of them stands.
            device: of all ranks.
            seconds: that a steady iteration takes.
        """
        steady = {rank: counter.iterations[1:] for rank, counter in counters.items() if members.get(rank)}
        if not seconds or not steady or not all(steady.values()):
            return None
        weights = [members[rank] for rank in steady]
        total: Counter[str] = Counter()
        for iterations in steady.values():
            total.update(iterations[-1].everything)
        if not total:
            return None

        def mean(value: Callable[[IterationFlops], float]) -> float:
            each = [median(map(value, iterations)) for iterations in steady.values()]
            return fmean(each, weights)

        factor = 1 + BACKWARD_PER_FORWARD
        dtype = max(total, key=lambda name: total[name])
        return cls(
            mfu=mean(lambda own: factor * _ideal_seconds(own.forward, device)) / seconds,
            hfu=mean(lambda own: _ideal_seconds(own.everything, device)) / seconds,
            model_flops=round(mean(lambda own: factor * sum(own.forward.values()))),
            flops=round(mean(lambda own: sum(own.everything.values()))),
            peak_flops=_peak(device, dtype),
            dtype=dtype,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as JSON types."""
        return asdict(self)


def _ideal_seconds(flops: Mapping[str, int], device: Device) -> float:
    return sum(amount / _peak(device, dtype) for dtype, amount in flops.items())


def _peak(device: Device, dtype: str) -> int:
    """Return what the device's vendor states, or what it reaches where that is not known."""
    return device.peaks.get(dtype) or device.rates[dtype]
