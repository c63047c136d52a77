"""Device: how fast a rank computes.

A roofline (Williams, Waterman and Patterson, CACM 52(4), 2009): an operation takes as long as
its arithmetic at the rate of its type, or as its bytes at the bandwidth of the memory, whichever is longer;
and a fixed time to launch it.  How near real kernels come to the peaks is stated as an efficiency: one for
each type and one for memory, and where kernels were measured, a table for each kind of kernel
(`sim.hardware.kernels`).

A GPU says more: how many multiprocessors a kernel's tiles are spread over, how its products and attention
kernels run by their shape, how much memory it has, and what a launch costs the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from sim.hardware.attention import AttentionRates
from sim.hardware.experts import ExpertConstants
from sim.hardware.kernels import KernelTable
from sim.hardware.products import ProductConstants, usual_small
from sim.units import SECOND

Kind: TypeAlias = Literal["cpu", "gpu"]


@dataclass(frozen=True)
class Device:
    """What one rank computes on.

    Attributes:
        name: of the device.
        rates: operations per second that matrix products reach, by type: ``float64``, ``float32``,
            ``tfloat32``, ``bfloat16``, ``float16``, ``float8``; only those that the device has.
        memory_bandwidth: bytes per second that kernels reach, reads and writes together.
        launch_ps: what every operation takes besides, in picoseconds.
        description: what it is, in a line.
        source: where the numbers are from.
        kernels: rates by shape, by kind of kernel and type; kinds that are not there follow the rest.
        kind: ``gpu`` where kernels run on streams while the host goes on, ``cpu`` where the host computes.
        host_overhead_ps: what an operation that launches a kernel takes of the host's time.
        host_boundary_ps: what Python takes of it besides for a call of a module and the like
            (`collectives.virtual.computation.boundaries`).
        host_enqueue_ps: what a collective or a message takes of it besides.
        memory_bytes: of the device; None where it is not stated.
        multiprocessors: over which the tiles of a kernel are spread; None where they are not stated.
        copy_bandwidth: bytes per second between the host's memory and the device's, one way; None where it
            is not stated.
        communication_share: part of the multiprocessors and of the memory's bandwidth that the kernels of
            collectives take from computation while they run, at least 0 and below 1.
        peaks: operations per second by type, as the vendor states them; what `rates` are parts of.
        products: how matrix products run by their shape, by type; at `rates` where a type is not there.
        convolutions: part of what products reach that convolutions do, by type; all of it where it is not
            there.
        attention: what fused attention kernels reach, by the name of their family.
        attention_kernels: the family that the device runs; empty where none is stated.
        experts: what layers of routed experts take, by the name of their kernels and their type.
        expert_kernels: the kernels by which the device runs grouped products; empty where none is stated.
        peak_memory_bandwidth: bytes per second, as the vendor states it.
        power: watts of the board under which constants were fitted; None where it is not stated.
        fitted_ranks: of the steps to which rates of training were fitted, the slowest of whom these contain.
    """

    name: str
    rates: Mapping[str, int]
    memory_bandwidth: int
    launch_ps: int = 0
    description: str = ""
    source: str = ""
    kernels: Mapping[tuple[str, str], KernelTable] = field(default_factory=dict)
    kind: Kind = "cpu"
    host_overhead_ps: int = 0
    host_boundary_ps: int = 0
    host_enqueue_ps: int = 0
    memory_bytes: int | None = None
    multiprocessors: int | None = None
    copy_bandwidth: int | None = None
    communication_share: float = 0.0
    peaks: Mapping[str, int] = field(default_factory=dict)
    products: Mapping[str, ProductConstants] = field(default_factory=dict)
    convolutions: Mapping[str, float] = field(default_factory=dict)
    attention: Mapping[str, AttentionRates] = field(default_factory=dict)
    attention_kernels: str = ""
    experts: Mapping[str, ExpertConstants] = field(default_factory=dict)
    expert_kernels: str = ""
    peak_memory_bandwidth: int = 0
    power: float | None = None
    fitted_ranks: int = 1

    def limited(self, watts: float) -> Device:
        """Return the device with a board that may take *watts*, no more than `power`.

        Raises:
            ValueError: the power is not stated, or is less.
        """
        if self.power is None:
            raise ValueError(f"{self.name} does not state of which power its constants are")
        if not 0 < watts <= self.power:
            raise ValueError(f"expected at most the {self.power:g} W of {self.name}, got {watts:g}")
        products = {dtype: own.limited(watts / self.power) for dtype, own in self.products.items()}
        return replace(self, products=products)

    def product_constants(self, dtype: str) -> ProductConstants:
        """Return how matrix products of *dtype* run: as the file says, else all at the rate of the type.

        Raises:
            KeyError: the device has no rate for *dtype*.
        """
        if dtype in self.products:
            return self.products[dtype]
        rate = float(self.rates[dtype])
        return ProductConstants(
            rate,
            rate,
            rate,
            bandwidth=self.memory_bandwidth,
            launch_ps=self.launch_ps,
            small=usual_small(dtype),
        )

    def duration_ps(self, operations: int, nbytes: int, dtype: str) -> int:
        """Return how long an operation takes whose kind was not measured, in picoseconds, rounded up once.

        Args:
            operations: of arithmetic, a multiplication and an addition each one.
            nbytes: read and written.
            dtype: at whose rate it computes; need be in `rates` only where there are operations.

        Raises:
            KeyError: the device has no rate for *dtype*.
        """
        moving = -(-nbytes * SECOND // self.memory_bandwidth)
        if not operations:
            return moving + self.launch_ps
        return max(-(-operations * SECOND // self.rates[dtype]), moving) + self.launch_ps
