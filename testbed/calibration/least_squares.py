"""Least squares of constants that have a least value, by which all calibrations fit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
RIDGE = 1e-4


def bounded(matrix: Floats, target: Floats, least: Floats, ridge: float = RIDGE) -> Floats:
    """Return x >= *least* for which ``|matrix x - target|²`` is least, by fixing what falls below.

    What the rows say nothing of stays where it is: a small *ridge* pulls it to 0.
    """
    size = matrix.shape[1]
    norms = np.linalg.norm(matrix, axis=0)
    norms[norms == 0] = np.inf  # such constants stay where they are
    scaled, ridges = matrix / norms, ridge * np.eye(size)
    fixed = np.zeros(size, dtype=bool)
    x = np.zeros(size)
    for _ in range(size + 1):
        free = ~fixed
        x = np.where(fixed, least, 0.0)
        rest = target - matrix[:, fixed] @ x[fixed]
        stacked = np.concatenate([scaled[:, free], ridges[:, free]])
        solution = np.linalg.lstsq(stacked, np.append(rest, np.zeros(size)), rcond=None)[0]
        x[free] = solution / norms[free]
        below = free & (x < least)
        if not below.any():
            break
        fixed |= below
    return np.maximum(x, least)
