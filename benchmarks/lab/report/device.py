"""Training steps that were predicted on a processor and measured there, in a document."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.calibration.confidence import Errors
from testbed.calibration.judge.steps import ValidatedDevice
from testbed.report.validation import steps_summary, steps_table
from testbed.result import Part, Text


def device_section(found: ValidatedDevice) -> Sequence[Part]:
    """Return predicted beside measured steps."""
    return [
        Text(
            [
                f"Machine: {found.description}. Predictions were written down before measuring, SHA-256 "
                f"`{found.digest[:16]}…`."
            ]
        ),
        steps_table(found.rows, described=True),
        Text([steps_summary(Errors.of(found.rows))]),
    ]
