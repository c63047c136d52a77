"""Rows of a plan with figures of a test's own."""

from __future__ import annotations

from testbed.planning.points import Point
from testbed.planning.row import Row


def row(seconds=1.0, *, network="a network", ranks=8, price=None, tokens=None, fewest=0, **figures):
    """Return a row of a step on that network by so many ranks."""
    work = {"fewest": fewest, "price_per_gpu_hour": price, "tokens_per_rank": tokens}
    point = Point("step", "a model", network, network, ranks, bucket_cap_mb=25.0, **work)
    usual = {"compute_seconds": 0.5, "efficiency": 0.5 / seconds, "algorithm": "ring", "resolved": "ring"}
    return Row(point, seconds, **{**usual, "inefficiencies": ("late", "contention"), **figures})
