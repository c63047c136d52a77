"""Reports of a device: what its kernels reach, by kind and type, and what steps were predicted from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sim.units import SECOND
from testbed.calibration.errors import Errors, far_off, signed
from testbed.output.table import percent, seconds
from testbed.result import Grid, Part, Result, Rows, Text, asked, found, quiet

if TYPE_CHECKING:
    from testbed.calibration.device.calibration import DeviceCalibration
    from testbed.calibration.judge.steps import StepRow, ValidatedDevice

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
STEP_COLUMNS = (
    *asked("case", "description"),
    *found("predicted_seconds", "measured_seconds", "spread", "error", "default_seconds", "reference"),
    *found("notices"),
)
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


def validated_result(validated: ValidatedDevice, predictions: Path) -> Result:
    """Return predicted beside measured steps; *predictions* is the file in which they stood before."""
    errors = Errors.of(validated.rows)
    return Result(
        question=f"How far are steps that were predicted on {validated.device} from those measured here?",
        answer=far_off(errors),
        method=["simulated", "measured"],
        model=MODEL,
        assumptions={"device": validated.device},
        rows=Rows(STEP_COLUMNS, [row.as_json() for row in validated.rows]),
        asked=("device", "description", "threads"),
        body={
            "device": validated.device,
            "description": validated.description,
            "threads": validated.threads,
            "predictions": {"file": str(predictions), "sha256": validated.digest},
            "median_error": errors and errors.median,
            "worst_error": errors and abs(errors.worst),
        },
        parts=[
            Text(title=f"{validated.device}: {validated.description}"),
            steps_table(validated.rows),
            Text([steps_summary(errors)], wrap=True, gap=False),
            quiet(
                STEPS_EXPLAINED,
                *dict.fromkeys(notice for row in validated.rows for notice in row.notices),
                gap=False,
            ),
            Text([f"Predicted beforehand: {predictions}, SHA-256 {validated.digest}"], gap=False),
        ],
    )


def steps_table(rows: Sequence[StepRow], *, described: bool = False) -> Grid:
    """Return predicted beside measured steps, *described* with what each is of."""
    cells = [
        (
            f"{row.case}: {row.description}" if described else row.case,
            seconds(row.predicted),
            seconds(row.measured),
            percent(row.spread),
            signed(row.error),
            seconds(row.default_seconds),
            f"{row.reference:.2f}",
        )
        for row in rows
    ]
    return Grid(STEP_HEADS, cells, gap=False)


def steps_summary(errors: Errors | None) -> str:
    """Return how far the predictions are off, in a sentence."""
    if errors is None:
        return "No step was predicted."
    return f"Error: median {percent(errors.median)}, worst {percent(abs(errors.worst))}."
