"""Measurements carried over from one generation of GPUs to another, where nobody has published any.

NCCL is the same program on each of them, so what a collective of n bytes took on one is expected of one of

    n × rate × latency   bytes to take   latency × as long

on the other, where *rate* is how many times as fast its NVLinks are and *latency* how many times as long its
steps wait: whatever part of a time is latency grows by that, whatever part is bytes shrinks by the other.

* **Rate**: of what NCCL counts for the NVLinks of a GPU; where the switches reduce, times what it counts for
  that (NVLS).  They did where a bus bandwidth exceeds what the links of a GPU carry one way.
* **Latency**: steps of NCCL's kernels are instructions, flags and fences of an SM, so it goes with the clock
  of the SMs.  From A100 to H100 that holds within a tenth; the rule was chosen knowing the rows of both.  For
  Blackwell, whose clock is that of Hopper, the only published table of nccl-tests with small sizes (8 GPUs of
  a GB200 NVL72) shows 1.6 times as much.  It is one collective on one machine, so neither is believed alone:
  their geometric mean is taken.

Source: NVIDIA/nccl 2.30, ``src/graph/topo.h`` (``SM80_NVLINK_BW`` and so on, times the links of a GPU),
``src/graph/tuning.cc`` (``nvlsEfficiency``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType
from typing import TypeAlias

from collectives.timing.formulas.bandwidth import busbw
from collectives.timing.formulas.measured import measured_at
from collectives.timing.formulas.nccl.constants import NCCL_2_30, slower_than_hopper
from sim import load_network
from sim.measured import MeasuredCurve
from testbed.calibration.tables.rows import MeasuredRow

NVLINK_GBPS = {"ampere": 12 * 20.0, "hopper": 18 * 20.6, "blackwell": 18 * 40.1}
"""GB/s that NCCL counts for the NVLinks of a GPU, one way."""

SMALL = (2**10, 2**16)
"""Bytes between which a time is latency."""

Call: TypeAlias = tuple[str, int, int]
"""Collective, number of nodes, number of ranks."""


def call_of(own: MeasuredRow | MeasuredCurve) -> Call:
    """Return of what call a row or a curve is."""
    return (own.collective, own.num_nodes, own.num_ranks)


@dataclass(frozen=True)
class Carrier:
    """How measurements of one preset are carried over to another one.

    Attributes:
        first: the preset that was measured.
        alike: both have GPUs of one generation; then all rows are carried over as they are, else those
            inside a node.
        rate: how many times as fast the other's NVLinks are.
        reduced_rate: the same where its switches reduce.
        latency: how many times as long a message of no bytes takes.
        line_rate: bytes/s that the links of a GPU of *first* carry one way, headers included.
    """

    first: str
    alike: bool
    rate: float
    reduced_rate: float
    latency: float
    line_rate: int

    @classmethod
    def between(
        cls,
        first: str,
        other: str,
        beside: Iterable[MeasuredRow] = (),
        curves: Mapping[Call, MeasuredCurve] = MappingProxyType({}),
    ) -> Carrier:
        """Return how measurements of the preset *first* are carried over to the preset *other*.

        Args:
            first: its name.
            other: its name.
            beside: rows measured on machines of *other*; those of small sizes show its latency.
            curves: those of *first*.
        """
        fields = load_network(first).fields
        old, new = _generation(first), _generation(other)
        rate = NVLINK_GBPS[new] / NVLINK_GBPS[old]
        efficiency = NCCL_2_30.nvls_efficiency
        reduced = efficiency[new] / efficiency[old] if efficiency[old] else 1.0
        shown = [
            row.seconds / measured_at(curves[call_of(row)], row.nbytes)
            for row in beside
            if old != new and call_of(row) in curves and SMALL[0] <= row.nbytes <= SMALL[1]
        ]
        latency = slower_than_hopper(new) / slower_than_hopper(old)
        if shown:
            latency = math.sqrt(latency * median(shown))
        return cls(first, old == new, rate, rate * reduced, latency, getattr(fields, "intra_bandwidth", 0))

    def __str__(self) -> str:
        """Return it in words, as a file says them."""
        if self.alike:
            return f"{self.first}, which has the same NVLink"
        return (
            f"{self.first}: NVLink × {self.rate:.3g}, where switches reduce × {self.reduced_rate:.3g}, "
            f"latency × {self.latency:.3g}"
        )

    def carried(self, rows: Sequence[MeasuredRow]) -> list[MeasuredRow]:
        """Return *rows* as they are expected on the other GPUs, in no other order."""
        reduced = {
            call_of(row)
            for row in rows
            if busbw(row.collective, row.nbytes, row.seconds, row.num_ranks) > self.line_rate
        }
        found = []
        for row in rows:
            rate = self.reduced_rate if call_of(row) in reduced else self.rate
            nbytes = round(row.nbytes * rate * self.latency)
            if self.alike or row.num_nodes == 1:
                found.append(replace(row, nbytes=nbytes, seconds=row.seconds * self.latency))
        return found


def _generation(preset: str) -> str:
    hardware = load_network(preset).fields.hardware
    assert hardware is not None, "presets that are carried name their hardware"
    return hardware.generation


def below_own(rows: Iterable[MeasuredRow], own: Iterable[MeasuredRow]) -> list[MeasuredRow]:
    """Return those of the carried *rows* that are smaller than all of the *own* rows of the same call."""
    least: dict[Call, int] = {}
    for row in own:
        least[call_of(row)] = min(row.nbytes, least.get(call_of(row), row.nbytes))
    return [row for row in rows if row.nbytes < least.get(call_of(row), row.nbytes + 1)]
