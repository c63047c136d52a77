"""Errors of predictions in words: by how much they are off, and at worst."""

from __future__ import annotations

from testbed.calibration.errors import Errors
from testbed.output.table import counted


def far_off(errors: Errors | None, of: str = "of the time") -> str:
    """Return in a sentence how far predictions are off."""
    if errors is None:
        return "No row is large enough to judge by."
    what = "%" if of == "of the time" else "points"
    return (
        f"By {100 * errors.median:.1f} {what} {of} (median of {counted(errors.num_rows, 'row')}), at worst "
        f"{100 * errors.worst:+.1f} {what}."
    )


def signed(error: float) -> str:
    """Return *error* in percent, with its sign."""
    return f"{100 * error:+.1f} %"
