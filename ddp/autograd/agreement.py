"""Agreement on what all ranks plan from: ready order, ready times and costs that rank 0 has seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from collectives.communicators.communicator import Communicator
from ddp.reduction.strategies.plan import LinearCost, PassTiming, calibration_sizes

NUM_SAMPLES = 3


def agree_on_order(communicator: Communicator, order: Sequence[int], device: torch.device) -> list[int]:
    """Return rank 0's *order*, on every rank."""
    values = torch.tensor(order, dtype=torch.int64, device=device)
    communicator.broadcast(values, root=0)
    own: list[int] = values.tolist()
    return own


def agree_on_timing(
    communicator: Communicator, ready_ps: Mapping[int, int], device: torch.device
) -> PassTiming:
    """Measure what an all-reduce costs, and return rank 0's costs and ready times, on every rank.

    *ready_ps* has every parameter, by any zero: that of the first gradient is taken.  Each size is
    all-reduced a few times, the first time to bring the ranks in step; the quickest counts.
    """
    small, large = (
        _measure(communicator, size, device) for size in calibration_sizes(communicator.world_size)
    )
    cost = LinearCost.through(small, large)
    first = min(ready_ps.values())
    own = [cost.latency_ps, cost.fs_per_byte, *(ready_ps[index] - first for index in range(len(ready_ps)))]
    latency_ps, fs_per_byte, *ready = agree_on_order(communicator, own, device)
    return PassTiming(tuple(ready), LinearCost(latency_ps, fs_per_byte))


def _measure(communicator: Communicator, nbytes: int, device: torch.device) -> tuple[int, int]:
    buffer = torch.zeros(nbytes // 4, dtype=torch.float32, device=device)
    times = []
    for _ in range(1 + NUM_SAMPLES):
        began_ps = communicator.clock.now_ps()
        communicator.all_reduce(buffer)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(communicator.clock.now_ps() - began_ps)
    return nbytes, min(times[1:])
