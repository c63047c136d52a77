"""Reports of a device: what its kernels reach, by kind and type, and what steps were predicted from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.units import SECOND
from testbed.output.folder import document
from testbed.output.table import percent, seconds, stdout_console, table

if TYPE_CHECKING:
    from rich.console import Console

    from testbed.truth.calibration.device.calibration import DeviceCalibration
    from testbed.truth.computation.validation import StepRow, ValidatedDevice

MODEL = (
    "the roofline of a device file: each operation at the rate of its kind, type and shape; measured with "
    "freed memory kept by the process"
)
STEP_HEADS = ("step of", "predicted", "measured", "spread", "error", "memory by default", "product beside")
STEPS_EXPLAINED = (
    "Measured: the median step, with freed memory kept by the process; spread: of its middle half. Memory by "
    "default: the median where the C library hands memory back, which no prediction has. Product beside: how "
    "many times as long as the file says a product of 1024³ took between the steps; what is above 1 was this "
    "machine, which others shared."
)


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


def print_validated(console: Console, found: ValidatedDevice, predictions: Path) -> None:
    """Print predicted beside measured steps."""
    console.print(f"{found.device}: {found.description}", style="bold", markup=False, soft_wrap=True)
    console.print(table(STEP_HEADS, map(step_cells, found.rows)))
    console.print(steps_summary(found), markup=False)
    console.print(STEPS_EXPLAINED, style="dim", markup=False)
    for notice in dict.fromkeys(notice for row in found.rows for notice in row.notices):
        console.print(notice, style="dim", markup=False)
    console.print(
        f"Predicted beforehand: {predictions}, SHA-256 {found.digest}", markup=False, soft_wrap=True
    )


def validated_document(found: ValidatedDevice, predictions: Path) -> dict[str, Any]:
    """Return the result document of predicted beside measured steps."""
    return document(
        method=["simulated", "measured"],
        model=MODEL,
        device=found.device,
        description=found.description,
        threads=found.threads,
        predictions={"file": str(predictions), "sha256": found.digest},
        median_error=found.median_error,
        worst_error=found.worst_error,
        rows=[row.as_json() for row in found.rows],
    )


def step_cells(row: StepRow) -> tuple[str, ...]:
    """Return the cells of a step, below `STEP_HEADS`."""
    return (
        row.case,
        seconds(row.predicted_seconds),
        seconds(row.measured_seconds),
        percent(row.spread),
        f"{100 * row.error:+.1f} %",
        seconds(row.default_seconds),
        f"{row.reference:.2f}",
    )


def steps_summary(found: ValidatedDevice) -> str:
    """Return how far the predictions are off, in a sentence."""
    return f"Error: median {percent(found.median_error)}, worst {percent(found.worst_error)}."
