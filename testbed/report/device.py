"""Reports of a calibrated device: what its kernels reach, by kind and type."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sim.units import SECOND
from testbed.output.table import percent, seconds, stdout_console, table

if TYPE_CHECKING:
    from testbed.truth.calibration.device.calibration import DeviceCalibration


def print_device(found: DeviceCalibration, written: Path | None) -> None:
    """Print what was *found*, and where its file was *written*."""
    console = stdout_console()
    console.print(found.machine, style="bold", markup=False, soft_wrap=True)
    peaks = ", ".join(f"{dtype} {peak / 1e9:,.4g} GFLOP/s" for dtype, peak in found.fitted.peaks.items())
    memory = f"memory {found.fitted.memory_bandwidth / 1e9:,.4g} GB/s"
    console.print(f"Fastest: {peaks}, {memory}", markup=False, soft_wrap=True)
    rows = [
        (
            own.operation,
            own.dtype,
            str(len(own.rates)),
            seconds(own.launch_ps / SECOND),
            f"{max(own.rates) / 1e9:,.3g}",
            "GFLOP/s" if own.work == "arithmetic" else "GB/s",
            percent(own.spread),
        )
        for own in found.fitted.kernels
    ]
    heads = ("kernel", "type", "shapes", "launch", "fastest", "of", "spread")
    console.print(table(heads, rows, text_columns=2))
    for name in found.refused:
        console.print(f"Not carried out here: {name}", markup=False, soft_wrap=True)
    console.print(
        "Spread: how far a shape's rounds lie above the fastest, which counts; the median over shapes.",
        style="dim",
        markup=False,
    )
    if written is not None:
        console.print(f"Written: {written}", markup=False, soft_wrap=True)
