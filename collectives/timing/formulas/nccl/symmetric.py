"""NCCL's symmetric kernels: what it expects of them where buffers are registered as windows.

A buffer registered as a symmetric window lies at one address on every rank, so that a kernel loads from and
stores to the others' memory itself, by way of the switches where these reduce and multicast.  NCCL has a
model of time of its own for these kernels, and takes the one for which

    time · (1 + 0.025 · blocks)

is least, in place of what `collectives.timing.formulas.nccl.model` chooses; a kernel takes as few blocks as
cost it no more than 2.5 % of its time.  NCCL's rates only serve its choice: from some MiB on they may exceed
what the links carry, and then a call takes what the links allow at best.

Assumed: buffers of both ends are registered; a call is not grouped with others; nothing is set in NCCL's
environment, so kernels by the tensor memory accelerator are off; ranks of one node share its NVLink domain.

Left out: kernels over several nodes, which need networking that the device starts by itself; and copy
engines, which NCCL takes for gathers by another policy and for which it has no model of time.

Source: NVIDIA/nccl 2.30, ``queryModel_lsa``, ``ncclSymkMask`` and ``ncclSymkPickKernel`` in
``src/sym_kernels.cc``, ``ncclMakeSymmetricTaskList`` in ``src/scheduler/symmetric_sched.cc``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from collectives.timing.formulas.nccl.terms import FLOAT8, REDUCED_IN_SWITCHES
from sim.hardware import Hardware

_MAX_BLOCKS = 64
_MAX_NVLS_BLOCKS: Mapping[str, int] = {"hopper": 16, "blackwell": 32}
"""Of kernels by way of the switches, divided by the ranks."""

_LL_BUS_FACTOR = 9
_MAX_LL_NBYTES = 2 << 30
_MAX_NBYTES = 64 << 30
_SAME_TIME = 1.025
_PENALTY_OF_BLOCK = 0.025
_GIB_PER_S = (1 << 30) / 1e6
"""In bytes per microsecond, as the times below are in microseconds."""

_SUMMED = ("float32", "float16", "bfloat16", *FLOAT8)


@dataclass(frozen=True, slots=True)
class _Kernel:
    """One kernel: how many bytes it moves over a rank's links, and by which means.

    Attributes:
        name: NCCL's.
        is_ll: a flag goes with each word, so that no barrier is needed.
        loads_by_switch: switches reduce what is loaded.
        stores_by_switch: switches multicast what is stored.
        speedup: by which one block's rate counts more often, as switches do its work.
    """

    name: str
    is_ll: bool = False
    loads_by_switch: bool = False
    stores_by_switch: bool = False
    speedup: float = 1.0

    @property
    def by_switch(self) -> bool:
        """Whether switches reduce or multicast."""
        return self.loads_by_switch or self.stores_by_switch


_KERNELS: Mapping[str, tuple[_Kernel, ...]] = {
    "all_reduce": (
        _Kernel("AllReduce_AGxLL_R", is_ll=True),
        _Kernel("AllReduce_AGxLLMC_R", is_ll=True, stores_by_switch=True, speedup=1.1),
        _Kernel("AllReduce_RSxLD_AGxST"),
        _Kernel("AllReduce_RSxLDMC_AGxSTMC", loads_by_switch=True, stores_by_switch=True),
    ),
    "all_gather": (
        _Kernel("AllGather_LL", is_ll=True),
        _Kernel("AllGather_LLMC", is_ll=True, stores_by_switch=True, speedup=1.1),
        _Kernel("AllGather_ST"),
        _Kernel("AllGather_STMC", stores_by_switch=True),
    ),
    "reduce_scatter": (
        _Kernel("ReduceScatter_LL", is_ll=True),
        _Kernel("ReduceScatter_LD"),
        _Kernel("ReduceScatter_LDMC", loads_by_switch=True),
    ),
}
"""In NCCL's order, without those that are off or go over several nodes."""


@dataclass(frozen=True, slots=True)
class SymmetricKernel:
    """A symmetric kernel, as NCCL would launch it.

    Attributes:
        name: NCCL's.
        blocks: how many it takes.
        latency_seconds: the part that does not depend on the size.
        seconds: expected time.
    """

    name: str
    blocks: int
    latency_seconds: float
    seconds: float

    @property
    def price(self) -> float:
        """By what NCCL chooses; the least is taken."""
        return self.seconds * (1 + _PENALTY_OF_BLOCK * self.blocks)


def symmetric_kernel(
    collective: str,
    nbytes: int,
    num_ranks: int,
    hardware: Hardware,
    dtype: str = "float16",
    operation: str = "sum",
) -> SymmetricKernel | None:
    """Return the kernel that NCCL would take among the ranks of one node; None where it has none.

    Args:
        collective: what is computed.
        nbytes: size of the buffer, as nccl-tests counts it: for all-gather and reduce-scatter, of all parts.
        num_ranks: of the group, all in one node.
        hardware: what they are.
        dtype: torch's name of the elements' type.
        operation: ``sum``, ``avg``, ``min``, ``max`` or ``product``.
    """
    if num_ranks < 2 or hardware.generation not in _MAX_NVLS_BLOCKS or hardware.intra_link != "nvlink":
        return None
    reduces = collective != "all_gather"
    if reduces and not (dtype in _SUMMED and operation in ("sum", "avg")):
        return None
    kernels = [
        _launched(kernel, collective, nbytes, num_ranks, hardware.generation)
        for kernel in _KERNELS.get(collective, ())
        if nbytes < (_MAX_LL_NBYTES if kernel.is_ll else _MAX_NBYTES)
        and (not kernel.by_switch or (hardware.nvls and num_ranks > 2))
        and (not kernel.loads_by_switch or _is_reduced_in_switches(dtype, hardware.generation))
    ]
    return min(kernels, key=lambda kernel: kernel.price, default=None)


def _is_reduced_in_switches(dtype: str, generation: str) -> bool:
    """Return whether switches add elements of *dtype*."""
    return dtype in REDUCED_IN_SWITCHES or (dtype in FLOAT8 and generation == "blackwell")


def _launched(
    kernel: _Kernel, collective: str, nbytes: int, num_ranks: int, generation: str
) -> SymmetricKernel:
    """Return *kernel* with as few blocks as do not slow it down."""
    bus_nbytes, speedup = _bus(kernel, collective, nbytes, num_ranks)
    latency, of_block, peak = _rates(kernel, collective, generation)
    most = _MAX_BLOCKS
    if kernel.by_switch and not kernel.is_ll:
        most = -(-_MAX_NVLS_BLOCKS[generation] // num_ranks)

    def microseconds(blocks: int) -> float:
        bandwidth = _soft_minimum(blocks * of_block * speedup, peak, of_block)
        return latency + _soft_plus(bus_nbytes / bandwidth - 1)

    enough = _SAME_TIME * microseconds(most)
    blocks = next((few for few in range(1, most) if microseconds(few) <= enough), most)
    return SymmetricKernel(kernel.name, blocks, latency * 1e-6, microseconds(blocks) * 1e-6)


def _bus(kernel: _Kernel, collective: str, nbytes: int, num_ranks: int) -> tuple[float, float]:
    """Return the bytes that a rank's links carry, and how many times a block's rate counts.

    Of a gather and a scatter NCCL counts one part more where switches multicast or reduce, but compares
    them as if it did not.
    """
    part = nbytes if collective == "all_reduce" else nbytes / num_ranks
    if kernel.is_ll:
        return num_ranks * part * _LL_BUS_FACTOR, kernel.speedup
    if collective != "all_reduce":
        return (num_ranks - 1) * part, 0.55 * num_ranks if kernel.by_switch else 1.0
    if kernel.by_switch:
        return nbytes / num_ranks + nbytes, num_ranks
    return 2 * nbytes * (num_ranks - 1) / num_ranks, 1.0


def _rates(kernel: _Kernel, collective: str, generation: str) -> tuple[float, float, float]:
    """Return the latency in us, and the rates of a block and of all in bytes/us."""
    all_reduce, both_ways = collective == "all_reduce", kernel.loads_by_switch and kernel.stores_by_switch
    if generation == "hopper":
        latency = 4.5 if kernel.is_ll else 7.8
        return latency, (65 if all_reduce else 44) * _GIB_PER_S, (480 if both_ways else 320) * _GIB_PER_S
    if kernel.is_ll:
        latency = 8.5 if collective == "all_gather" else 11.0
    else:
        latency = 19.5 if all_reduce else 13.0
    return latency, 55 * _GIB_PER_S, (1000 if both_ways else 600) * _GIB_PER_S


def _soft_minimum(value: float, ceiling: float, softness: float) -> float:
    """Return nearly the least of *value* and *ceiling*, without a corner between them."""
    return ceiling - softness * math.log1p((math.exp(ceiling / softness) - 1) * math.exp(-value / softness))


def _soft_plus(value: float) -> float:
    """Return nearly the greater of *value* and 0, without a corner between them."""
    return value if value >= 100 else math.log1p(math.exp(value))
