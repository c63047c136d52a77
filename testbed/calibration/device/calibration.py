"""Calibration of the device of this machine: what was measured, fitted, and written as a device file.

A kernel takes its launch and then its work at a rate.  The launch of a kind is what its smallest shape takes,
or if that moves more than 16 KiB, and so does more than launch, the median of the other kinds' launches;
the rate of a shape is its work by the rest of its time.  Where hardly any rest is left, a tenth of the time
counts, so that a shape that launches all but fill is predicted a tenth too slow at most.
"""

from __future__ import annotations

import platform
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from sim.hardware.kernels import Work
from sim.units import SECOND
from testbed.calibration import toml_text
from testbed.calibration.device.measuring import (
    PASSES,
    TORCH_TYPES,
    MeasuredKernel,
    measured_kernels,
    with_threads,
)
from testbed.calibration.device.memory import keep_memory
from testbed.errors import UsageError
from testbed.output.table import Advance, grouped

LEAST_REST = 0.1
SMALL_BYTES = 16 * 1024


@dataclass(frozen=True)
class FittedKernels:
    """What was found of one kind in one type.

    Attributes:
        operation: the kind.
        dtype: the type.
        work: what rates count.
        axes: the measured sizes.
        rates: of each shape per second, the last axis changes fastest.
        launch_ps: of each kernel.
        spread: median over the shapes of how far their rounds lie apart, as a part of the fastest.
    """

    operation: str
    dtype: str
    work: Work
    axes: Mapping[str, tuple[int, ...]]
    rates: tuple[float, ...]
    launch_ps: int
    spread: float


@dataclass(frozen=True)
class FittedDevice:
    """What was found of a device.

    Attributes:
        peaks: operations per second of the fastest product, by type.
        reached: the part of it that a large product reaches, by type.
        memory_bandwidth: bytes per second of the fastest large kernel that memory bounds.
        memory_reached: the part of it that an addition reaches.
        launch_ps: the median launch of all kinds.
        kernels: by kind and type.
    """

    peaks: Mapping[str, float]
    reached: Mapping[str, float]
    memory_bandwidth: float
    memory_reached: float
    launch_ps: int
    kernels: Sequence[FittedKernels]


def fit(measured: Iterable[MeasuredKernel]) -> FittedDevice:
    """Return the device whose kernels take as long as was measured.

    Raises:
        UsageError: no product or no addition is among them, without which there are no peaks.
    """
    groups = grouped(measured, lambda kernel: (kernel.operation, kernel.dtype))
    launches = {key: launch for key, group in groups.items() if (launch := _launch(group)) is not None}
    usual = statistics.median(launches.values()) if launches else 0.0
    kernels = [_fit_kind(group, launches.get(key, usual)) for key, group in groups.items()]

    products = {own.dtype: own for own in kernels if own.operation == "product"}
    additions = [own for own in kernels if own.operation == "add"]
    if not products or not additions:
        raise UsageError("cannot fit a device without measured products and additions; measure more kinds")
    peaks = {dtype: max(own.rates) for dtype, own in products.items()}
    memory = max(own.rates[-1] for own in kernels if own.work == "bytes")
    return FittedDevice(
        peaks=peaks,
        reached={dtype: own.rates[-1] / peaks[dtype] for dtype, own in products.items()},
        memory_bandwidth=memory,
        memory_reached=additions[0].rates[-1] / memory,
        launch_ps=round(usual * SECOND),
        kernels=kernels,
    )


def _launch(group: Sequence[MeasuredKernel]) -> float | None:
    """Return the seconds of the launch, or None if no shape is small enough to tell."""
    small = [kernel.fastest for kernel in group if kernel.nbytes <= SMALL_BYTES]
    return min(small) if small else None


def _fit_kind(group: Sequence[MeasuredKernel], launch: float) -> FittedKernels:
    """Return what was found of the kernels of one kind and type, which lie on a grid of shapes."""
    by_shape = {tuple(kernel.shape.values()): kernel for kernel in group}
    axes = {name: tuple(sorted({kernel.shape[name] for kernel in group})) for name in group[0].shape}
    counts_arithmetic = all(kernel.flops for kernel in group)

    rates = []
    for sizes in product(*axes.values()):
        kernel = by_shape[sizes]
        rest = max(kernel.fastest - launch, LEAST_REST * kernel.fastest)
        rates.append((kernel.flops if counts_arithmetic else kernel.nbytes) / rest)
    return FittedKernels(
        operation=group[0].operation,
        dtype=group[0].dtype,
        work="arithmetic" if counts_arithmetic else "bytes",
        axes=axes,
        rates=tuple(rates),
        launch_ps=round(launch * SECOND),
        spread=statistics.median(kernel.spread for kernel in group),
    )


def device_file_text(device: FittedDevice, description: str, source: str) -> str:
    """Return the device file of *device*, which `sim.files.device_file` reads.

    Args:
        device: what was found.
        description: what it is, in a line.
        source: how it was measured; may have several lines.
    """
    head = {
        "schema": 1,
        "description": description,
        "memory_bandwidth": f"{device.memory_bandwidth / 1e9:.4g}GB/s",
        "memory_efficiency": _part(device.memory_reached),
        "launch_overhead": f"{device.launch_ps / 1e6:.4g}us",
        "source": f"{source}\n",
    }
    lines = toml_text.fields(head)
    for dtype, peak in device.peaks.items():
        own = {"peak": f"{peak / 1e9:.5g}GFLOP/s", "efficiency": _part(device.reached[dtype])}
        lines += ["", *toml_text.table(dtype, own)]
    for kernels in device.kernels:
        lines += ["", *_kernels_table(kernels, device)]
    return "\n".join([*lines, ""])


def _kernels_table(kernels: FittedKernels, device: FittedDevice) -> Iterator[str]:
    memory_bound = kernels.work == "bytes"
    peak = device.memory_bandwidth if memory_bound else device.peaks[kernels.dtype]
    parts = [_part(rate / peak) for rate in kernels.rates]
    row = len([*kernels.axes.values()][-1])
    yield "[[kernels]]"
    yield from toml_text.fields(
        {
            "operation": kernels.operation,
            "dtype": kernels.dtype,
            "of": "memory" if memory_bound else None,
            "launch_overhead": f"{kernels.launch_ps / 1e6:.4g}us",
            "axes": kernels.axes,
        }
    )
    yield from toml_text.array(
        "efficiency", (parts[begin : begin + row] for begin in range(0, len(parts), row))
    )


def _part(part: float) -> float:
    """Return *part* to as many digits as a file says."""
    return float(f"{part:.4g}")


OF_PROCESSORS = ("float32", "bfloat16")
OF_ACCELERATORS = ("float32", "tfloat32", "bfloat16", "float16")


@dataclass(frozen=True)
class DeviceCalibration:
    """What was found of a device.

    Attributes:
        machine: the device, in a line.
        source: how it was measured.
        fitted: what was found.
        num_shapes: kernels that were measured, each shape of each kind one.
        refused: kinds that the device cannot carry out in a type.
    """

    machine: str
    source: str
    fitted: FittedDevice
    num_shapes: int
    refused: Sequence[str]

    @property
    def text(self) -> str:
        """The device file."""
        return device_file_text(self.fitted, self.machine, self.source)

    def as_json(self) -> dict[str, Any]:
        """Return it for a result document."""
        fitted = self.fitted
        return {
            "device": self.machine,
            "source": self.source,
            "peaks": dict(fitted.peaks),
            "memory_bandwidth": fitted.memory_bandwidth,
            "launch_seconds": fitted.launch_ps / SECOND,
            "num_shapes": self.num_shapes,
            "refused": list(self.refused),
        }


def this_device() -> torch.device:
    """Return this machine's accelerator, or its processor if it has none."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if found is None else found


def checked_types(types: Sequence[str] | None, device: torch.device) -> tuple[str, ...]:
    """Return the types to measure on *device*.

    Raises:
        UsageError: one is not known, or float32 is missing.
    """
    if types is None:
        return OF_PROCESSORS if device.type == "cpu" else OF_ACCELERATORS
    unknown = [dtype for dtype in types if dtype not in TORCH_TYPES]
    if unknown or not types:
        raise UsageError(
            f"--types: expected some of {', '.join(TORCH_TYPES)}, got {', '.join(unknown) or 'none'}"
        )
    return tuple(dict.fromkeys(types))


def calibrated(
    device: torch.device, types: Sequence[str], threads: int, advance: Advance
) -> DeviceCalibration:
    """Return what is found of *device* by measuring it.

    Args:
        device: of this machine.
        types: in which kernels compute, as device files call them.
        threads: of the processor.
        advance: is told after each kernel.
    """
    kept = device.type == "cpu" and keep_memory()
    with with_threads(threads):
        measured, refused = measured_kernels(device, types, advance)
    fitted = fit(measured)
    where = f"{threads} thread{'s' if threads > 1 else ''}" if device.type == "cpu" else "one device"
    spread = max(own.spread for own in fitted.kernels)
    source = "\n".join(
        [
            f"Measured by testbed calibrate --device with torch {torch.__version__}: {where}, "
            f"{', '.join(types)}.",
            f"{len(measured)} shapes, each the fastest of up to {PASSES} rounds, which lie up to "
            f"{100 * spread:.0f} % apart (the median shape of the worst kind).",
            "Operands come from a pool of 128 MiB; results are kept to the end of a round"
            + (", and freed memory by the process." if kept else "."),
        ]
    )
    name = _processor() if device.type == "cpu" else torch.cuda.get_device_name(device)
    return DeviceCalibration(f"{name}, {where}", source, fitted, len(measured), refused)


def _processor() -> str:
    """Return the name of this machine's processor, as the system calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
