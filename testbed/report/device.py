"""Reports of a device: what its kernels reach, by kind and type, and what steps were predicted from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.units import SECOND
from testbed.output.folder import document
from testbed.output.table import percent, seconds, table
from testbed.result import Grid, Part, Result, Rows, Text, asked, found, quiet

if TYPE_CHECKING:
    from rich.console import Console

    from testbed.truth.calibration.device.calibration import DeviceCalibration
    from testbed.truth.computation.validation import StepRow, ValidatedDevice

MODEL = (
    "the roofline of a device file: each operation at the rate of its kind, type and shape; measured with "
    "freed memory kept by the process"
)
KERNELS_MODEL = (
    "a kernel takes a launch and then its arithmetic or bytes at a rate that depends on its kind, type and "
    "shape; each time is the fastest of several rounds"
)
KERNELS = (
    *asked("operation", "dtype", "work"),
    *found("shapes", "launch_seconds", "slowest_rate", "fastest_rate", "spread"),
)
STEP_HEADS = ("step of", "predicted", "measured", "spread", "error", "memory by default", "product beside")
STEPS_EXPLAINED = (
    "Measured: the median step, with freed memory kept by the process; spread: of its middle half. Memory by "
    "default: the median where the C library hands memory back, which no prediction has. Product beside: how "
    "many times as long as the file says a product of 1024³ took between the steps; what is above 1 was this "
    "machine, which others shared."
)


def device_result(calibrated: DeviceCalibration, written: Path | None) -> Result:
    """Return what was found of a device, and where its file was *written*."""
    body = calibrated.as_json()
    rows = body.pop("rows")
    fitted = calibrated.fitted
    peaks = ", ".join(f"{dtype} {peak / 1e9:,.4g} GFLOP/s" for dtype, peak in fitted.peaks.items())
    fastest = f"Fastest: {peaks}, memory {fitted.memory_bandwidth / 1e9:,.4g} GB/s"
    return Result(
        question=f"What do kernels take on {calibrated.machine}?",
        answer=f"{fastest}.",
        method="measured",
        model=KERNELS_MODEL,
        rows=Rows(KERNELS, rows),
        asked=("device",),
        body={"written": [] if written is None else [str(written)], **body},
        parts=list(_device_parts(calibrated, fastest)),
        files={} if written is None else {"Written": written},
    )


def _device_parts(calibrated: DeviceCalibration, fastest: str) -> Iterator[Part]:
    yield Text([fastest], calibrated.machine)
    cells = [
        (
            own.operation,
            own.dtype,
            str(len(own.rates)),
            seconds(own.launch_ps / SECOND),
            f"{max(own.rates) / 1e9:,.3g}",
            "GFLOP/s" if own.work == "arithmetic" else "GB/s",
            percent(own.spread),
        )
        for own in calibrated.fitted.kernels
    ]
    heads = ("kernel", "type", "shapes", "launch", "fastest", "of", "spread")
    yield Grid(heads, cells, text_columns=2, gap=False)
    yield Text([f"Not carried out here: {name}" for name in calibrated.refused], gap=False)
    yield quiet(
        "Spread: how far a shape's rounds lie above the fastest, which counts; the median over shapes.",
        gap=False,
    )


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
