"""Calibration of the device of this machine: which device, in which types, and what was found of it."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sim.units import SECOND
from testbed.calibration.device.fitting import FittedDevice, device_file_text, fit
from testbed.calibration.device.measuring import PASSES, TORCH_TYPES, measured_kernels, with_threads
from testbed.calibration.device.memory import keep_memory
from testbed.errors import UsageError
from testbed.output.table import Advance

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
            "rows": [own.as_json() for own in fitted.kernels],
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
