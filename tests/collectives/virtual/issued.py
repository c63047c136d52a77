"""Issues of a piece of a script on the virtual GPU of its rank."""

import functools
from collections.abc import Callable
from typing import Any

from collectives.virtual import Roofline, VirtualRun, run
from collectives.virtual.streams.gpu import current_gpu
from collectives.virtual.streams.score import Item, Launch
from sim import Device
from sim.units import SECOND
from tests.given import switch

BYTES_ALONE = Device(
    "gpu", {"float32": 2**62}, memory_bandwidth=SECOND, launch_ps=1000, kind="gpu",
    peaks={"float32": 2**62}, copy_bandwidth=SECOND,
)  # fmt: skip
"""A GPU that takes a picosecond for a byte, a nanosecond for a launch, and nothing for arithmetic."""


def on_own_gpus(
    work: Callable[[], Any], device: str | Device = "h100", ranks: int = 1, **options
) -> VirtualRun:
    """Run *work* on ranks with a GPU and a thread each, without data if *options* do not say otherwise."""

    @functools.wraps(work)  # whose module says whether ranks get devices
    def on_rank(rank: int) -> Any:
        return work()

    options = {"fake": True, "fold": False, **options}
    return run(on_rank, network=switch(ranks), compute=Roofline(device), **options)


def issued_by(work: Callable[[], Any]) -> list[Item]:
    """Return what *work* issues on the GPU of this rank."""
    gpu, found = current_gpu(), []
    gpu.issue_deferred()
    gpu.listeners.append(found.append)
    work()
    gpu.issue_deferred()
    gpu.listeners.remove(found.append)
    return found


def launched_by(work: Callable[[], Any]) -> list[tuple[str, int]]:
    """Return the names of kernels that *work* launches on the GPU of this rank, and their picoseconds."""
    return [(item.name, item.duration_ps) for item in issued_by(work) if isinstance(item, Launch)]
