"""Errors of predictions in a sentence: by how much they are off, and at worst."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from testbed.output.table import counted


def far_off(middle: float | None, worst: float | None, number: int, of: str = "of the time") -> str:
    """Return in a sentence how far predictions are off."""
    if middle is None or worst is None:
        return f"No row is large enough to judge by ({counted(number, 'row')})."
    what = "%" if of == "of the time" else "points"
    return (
        f"By {100 * middle:.1f} {what} {of} (median of {counted(number, 'row')}), at worst "
        f"{100 * worst:+.1f} {what}."
    )


def far_off_all(errors: Sequence[float], of: str = "of the time") -> str:
    """Return in a sentence how far predictions with these *errors* are off."""
    if not errors:
        return far_off(None, None, 0)
    return far_off(median(map(abs, errors)), max(errors, key=abs), len(errors), of)
