"""Training steps that were predicted on a processor and measured there, as a section of a document."""

from __future__ import annotations

from textwrap import wrap

from benchmarks.lab.document import Section
from testbed.report.device import STEP_HEADS, STEPS_EXPLAINED, step_cells, steps_summary
from testbed.truth.computation.validation import ValidatedDevice

_FAILS = (
    "Operations are charged with operands out of memory; what the one before left in a cache is read faster.",
    "Pages that the system maps anew are not in it: compare the two measured columns.",
    "Rates saturate as shapes grow; a line in logarithms between two measured shapes lies below. Pictures\n"
    "  are measured at edges 2, 8 and 32, convolutions in batches of 1 and 16: those of the ResNet lie\n"
    "  between, and some of their kernels are predicted a third too slow.",
    "What else runs on the machine: a step that others disturb takes longer than the fastest kernels allow.",
    "Kernels outside of the measured shapes go at the rate of the nearest; a notice of the run names them.",
)


def device_section(found: ValidatedDevice) -> Section:
    """Return the section of predicted beside measured steps."""
    lines = [
        "Written by `python -m benchmarks.lab.truth --device FILE`, with a file that `testbed calibrate",
        f"--device` had written on the same machine: {found.description}. Predictions were written",
        f"down before measuring (SHA-256 `{found.digest[:16]}…`); nothing is fitted to these models.",
        "",
        f"| {' | '.join(STEP_HEADS)} |",
        f"|---{'|--:' * (len(STEP_HEADS) - 1)}|",
        *(f"| {row.case}: {row.description} | {' | '.join(step_cells(row)[1:])} |" for row in found.rows),
        "",
        steps_summary(found),
        "",
        *wrap(STEPS_EXPLAINED, 116),
        "",
        "Where and why it fails:",
        *(f"* {line}" for line in _FAILS),
    ]
    return Section("devices", "Training steps on a processor", "\n".join(lines))
