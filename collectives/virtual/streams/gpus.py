"""GPUs of a run: one for each rank thread whose model of computation is a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from collectives.virtual.streams.gpu import Gpu
from sim.cluster import RankThread, Surroundings
from sim.hardware import Device


class Gpus:
    """The GPUs of one run, by the rank of their thread."""

    def __init__(self) -> None:
        self.of_rank: dict[int, Gpu] = {}

    @staticmethod
    def of(cluster: Surroundings) -> Gpus:
        """Return those of *cluster*, which has none at first."""
        gpus: Gpus = cluster.shared.setdefault(Gpus, Gpus())
        return gpus


def gpu_of(model: Any) -> Device | None:
    """Return the GPU on which ranks compute by this model of computation; None if it is none."""
    device = getattr(model, "device", None)
    return device if isinstance(device, Device) and getattr(device, "kind", "cpu") == "gpu" else None


@contextmanager
def on_gpu(rank_thread: RankThread, model: Any) -> Iterator[None]:
    """Give this rank's thread its GPU while the body runs, if *model* is one, and wait for it at the end."""
    device = gpu_of(model)
    if device is None:
        yield
        return
    gpu = Gpus.of(rank_thread.cluster).of_rank[rank_thread.rank] = Gpu(rank_thread, device)
    gpu.enter()
    try:
        yield
        gpu.finish()
    finally:
        gpu.leave()
