"""GPUs of a run: one for each rank thread whose model of computation is a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from collectives.virtual.notices import Notices
from collectives.virtual.streams.account import Played
from collectives.virtual.streams.gpu import Gpu
from collectives.virtual.world import VirtualWorld
from sim.cluster import Cluster, RankThread
from sim.cluster.surroundings import OfCluster
from sim.hardware import Device
from sim.units import format_time


class Gpus(OfCluster):
    """The GPUs of one run.

    Attributes:
        of_rank: by the rank of their thread.
    """

    def __init__(self) -> None:
        self.of_rank: dict[int, Gpu] = {}

    @property
    def are_in_use(self) -> bool:
        """Whether a rank has used one by itself, so that its tensors of the CPU were the host's."""
        return any(gpu.in_use for gpu in self.of_rank.values())

    def played(self) -> Iterator[tuple[int, int, Played]]:
        """Yield of each rank that was played the rank of its thread, its own number, and what is known."""
        for rank, gpu in self.of_rank.items():
            for member, played in gpu.players.played():
                yield rank, member, played

    def conclude(self, cluster: Cluster) -> None:
        """Let *cluster* know when the ranks ended, and say what was written too late."""
        late: Played | None = None
        for _, rank, played in self.played():
            if played.end_ps is not None:
                cluster.played[rank] = played.end_ps, played.busy_ps
            if played.num_late and (late is None or played.late_ps > late.late_ps):
                late = played
        if late is not None:
            Notices.of(cluster).add(
                f"{late.num_late} calls of a rank began up to {format_time(late.late_ps)} late, as the rank "
                "had waited for another one's data or clock"
            )


def gpu_of(model: Any) -> Device | None:
    """Return the GPU on which ranks compute by this model of computation; None if it is none."""
    device = getattr(model, "device", None)
    return device if isinstance(device, Device) and device.kind == "gpu" else None


@contextmanager
def on_gpu(rank_thread: RankThread, model: Any) -> Iterator[None]:
    """Give this rank's thread its GPU while the body runs, if *model* is one, and wait for it at the end."""
    device = gpu_of(model)
    if device is None:
        yield
        return
    rank = rank_thread.rank
    world = VirtualWorld.of(rank_thread.cluster)
    gpu = Gpu(rank_thread, device, world.classes.members(rank), world.slowest)
    Gpus.of(rank_thread.cluster).of_rank[rank] = gpu
    gpu.enter()
    try:
        yield
        gpu.finish()
    finally:
        gpu.leave()
