"""Latency and bandwidth of a switch, fitted to a run.

On a switch the time of a program is linear in the two: ``t = A·α + B·β``.  The simulator itself
says A and B of each size (from a run without latency and one with), so whatever algorithm was
measured, no formula of it is needed.  The fit minimises the relative
error, so that small messages count as much as large ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sim import Topology

UNIT_LATENCY = 1e-3
UNIT_BANDWIDTH = 10**9
MAX_BANDWIDTH = 4 * 10**12
"""What is taken for a network that never limits."""


def fit_switch(algorithm: Any, world_size: int, sizes: Sequence[int], seconds: Sequence[float]) -> Topology:
    """Return the switch on which *algorithm* takes *seconds* for *sizes*, as nearly as can be.

    Args:
        algorithm: as `collectives.simulation.simulation` takes it.
        world_size: number of ranks, at least 2.
        sizes: bytes.
        seconds: measured time of each size, above 0.
    """
    from collectives.simulation import simulate
    from sim import Topology

    measured = np.asarray(seconds)
    without, with_latency = (
        np.asarray([simulate(algorithm, nbytes=size, topology=network).seconds for size in sizes])
        for network in (
            Topology.switch(num_ranks=world_size, bandwidth=UNIT_BANDWIDTH, latency=latency)
            for latency in (0, UNIT_LATENCY)
        )
    )
    latency_share, byte_share = (with_latency - without) / measured, without / measured
    scales = _nonnegative(latency_share, byte_share)
    return Topology.switch(
        num_ranks=world_size,
        bandwidth=max(1, round(min(UNIT_BANDWIDTH / max(scales[1], 1e-12), MAX_BANDWIDTH))),
        latency=round(UNIT_LATENCY * scales[0], 12),
        name="fitted switch",
    )


def _nonnegative(first: Any, second: Any) -> tuple[float, float]:
    """Return x, y >= 0 that minimise ``|x·first + y·second - 1|²``."""
    ones = np.ones_like(first)
    x, y = np.linalg.lstsq(np.stack([first, second], axis=1), ones, rcond=None)[0]
    if len(ones) > 1 and x >= 0 and y >= 0:
        return float(x), float(y)
    alone = [float(column.sum() / (column @ column)) for column in (first, second)]
    errors = [
        float(((scale * column - 1) ** 2).sum()) for scale, column in zip(alone, (first, second), strict=True)
    ]
    return (alone[0], 0.0) if errors[0] < errors[1] else (0.0, alone[1])
