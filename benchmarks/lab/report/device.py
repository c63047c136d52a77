"""Training steps that were predicted on a processor and measured there, in a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from testbed.calibration.confidence import Errors
from testbed.calibration.judge.steps import ValidatedDevice
from testbed.report.validation import STEP_COLUMNS, steps_summary
from testbed.result import Part, Rows, Text


def device_section(found: ValidatedDevice) -> Sequence[Part]:
    """Return predicted beside measured steps."""
    described = [replace(row, case=f"{row.case}: {row.description}") for row in found.rows]
    return [
        Text(
            [
                f"Machine: {found.description}. Predictions were written down before measuring, SHA-256 "
                f"`{found.digest[:16]}…`."
            ]
        ),
        Rows.of(STEP_COLUMNS, described).grid(gap=False),
        Text([steps_summary(Errors.of(found.rows))]),
    ]
