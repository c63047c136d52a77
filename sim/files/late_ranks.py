"""Late ranks: how much longer the slowest of several GPUs computes than the mean, which all others wait for.

Assumed: computing times of GPUs of one model deviate from their mean normally and independently, by the
deviation in ``inefficiencies.toml``, and as long as a step or longer; every step waits for the slowest.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from statistics import NormalDist

import numpy as np

from sim.files.inefficiency_table import inefficiency_table
from sim.hardware import Device


@cache
def slowest_of(num_ranks: int) -> Fraction:
    """Return how many times as long as the mean of all GPUs the slowest of *num_ranks* computes."""
    deviations = Fraction(round(expected_maximum(num_ranks) * 10**6), 10**6)
    return 1 + deviations * inefficiency_table().late_deviation


def slowest_on(device: Device, num_ranks: int) -> Fraction:
    """Return how many times as long as the rates of *device* say the slowest of *num_ranks* computes.

    Rates that were fitted to steps of several ranks have the slowest of so many in themselves; fewer take no
    less.
    """
    return max(Fraction(1), slowest_of(num_ranks) / slowest_of(device.fitted_ranks))


def expected_maximum(count: int) -> float:
    """Return the expected maximum of *count* independent standard normal variables.

    Source: E[max] is the integral of 1 - F(x)^n over x > 0 less that of F(x)^n over x < 0; David and
    Nagaraja, "Order Statistics", 3rd edition, section 3.1.
    """
    grid = np.linspace(0.0, 10.0, 4001)
    normal = NormalDist()
    above = 1 - np.array([normal.cdf(x) for x in grid]) ** count
    below = np.array([normal.cdf(-x) for x in grid]) ** count
    width = float(grid[1])
    inner = above - below
    return width * float(inner.sum() - (inner[0] + inner[-1]) / 2)
