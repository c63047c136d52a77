"""One switch fitted to one run: two constants, where nothing else was measured.

On a switch the time of a program is linear in latency and in seconds a byte: ``t = A·α + B·β``.  The
simulator itself says A and B of each size (from a run without latency and one with), so whatever was
measured, no formula of it is needed.  The fit minimises the relative error, so that small messages count as
much as large ones.  A calibration (`testbed.calibration.live.fit`) finds far more, from what was measured
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sim import Topology
from testbed.calibration.live.fit import bounded

UNIT_LATENCY = 1e-3
UNIT_BANDWIDTH = 10**9
MAX_BANDWIDTH = 4 * 10**12
"""What is taken for a network that never limits."""

Seconds = Callable[[int, Topology], float]
"""Says what a size takes on a network."""


def fit_switch(
    simulated: Seconds, world_size: int, sizes: Sequence[int], seconds: Sequence[float]
) -> Topology:
    """Return the switch on which *sizes* take *seconds*, as nearly as can be.

    Args:
        simulated: what the simulator says of a size on a network.
        world_size: number of ranks, at least 2.
        sizes: bytes.
        seconds: measured time of each size, above 0.
    """
    measured = np.asarray(seconds)
    without, with_latency = (
        np.asarray([simulated(size, network) for size in sizes])
        for network in (
            Topology.switch(num_ranks=world_size, bandwidth=UNIT_BANDWIDTH, latency=latency)
            for latency in (0, UNIT_LATENCY)
        )
    )
    shares = np.stack([(with_latency - without) / measured, without / measured], axis=1)
    latency, byte = bounded(shares, np.ones_like(measured), np.zeros(2)).tolist()
    return Topology.switch(
        num_ranks=world_size,
        bandwidth=max(1, round(min(UNIT_BANDWIDTH / max(byte, 1e-12), MAX_BANDWIDTH))),
        latency=round(UNIT_LATENCY * latency, 12),
        name="fitted switch",
    )
