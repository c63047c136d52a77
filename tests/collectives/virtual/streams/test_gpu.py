from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from collectives.virtual.streams import Gpu
from collectives.virtual.streams.played import Cause, Played
from sim.cluster import Cluster
from sim.hardware import Device
from sim.topology import Topology
from sim.topology.description import load_network

US = 10**6


def device(host_ps: int, share: float = 0) -> Device:
    return Device("gpu", {}, 10**12, kind="gpu", host_overhead_ps=host_ps, communication_share=share)


@dataclass
class Takes:
    """A call that takes its time from when the last of its ranks has come."""

    cluster: Cluster
    duration_ps: int
    num_ranks: int
    come: list[tuple[Sequence[int], Callable[[Sequence[int]], None]]] = field(default_factory=list)

    def begin(self, ranks: Sequence[int], through: Callable[[Sequence[int]], None]) -> None:
        self.come.append((ranks, through))
        if sum(len(own) for own, _ in self.come) == self.num_ranks:
            self.cluster.env.timeout(self.duration_ps).callbacks.append(lambda _: self._end())

    def _end(self) -> None:
        for ranks, through in self.come:
            through(ranks)


def played(num_ranks: int, own: Device, body: Callable[[Gpu, Cluster], Any]) -> list[Played]:
    cluster = Cluster(topology(num_ranks))

    def run(rank: int) -> Played:
        rank_thread = Cluster.current()
        assert rank_thread is not None
        gpu = Gpu(rank_thread, own)
        body(gpu, cluster)
        return gpu.finish()

    return cluster.run(run)


def topology(num_ranks: int) -> Topology:
    return load_network("switch-100g").topology(num_ranks)


def test_a_loop_of_long_kernels_is_bound_by_the_device() -> None:
    def body(gpu: Gpu, cluster: Cluster) -> None:
        for _ in range(100):
            gpu.launch("mm", 10 * US)

    (own,) = played(1, device(4 * US), body)

    assert own.end_ps == 4 * US + 100 * 10 * US
    assert own.busy_ps == 100 * 10 * US
    assert own.host_idle_ps == 4 * US


def test_a_loop_of_short_kernels_is_bound_by_the_host() -> None:
    def body(gpu: Gpu, cluster: Cluster) -> None:
        for _ in range(100):
            gpu.launch("add", 3 * US)

    (own,) = played(1, device(4 * US), body)

    assert own.end_ps == 100 * 4 * US + 3 * US
    assert own.host_idle_ps == 4 * US + 99 * 1 * US


def test_a_call_runs_beside_computation_and_its_rest_is_exposed() -> None:
    calls: list[Takes] = []

    def body(gpu: Gpu, cluster: Cluster) -> None:
        if not calls:
            calls.append(Takes(cluster, 50 * US, 2))
        gpu.launch("first", 10 * US)
        event = gpu.call("lane", calls[0], "all_reduce", "world")
        gpu.launch("second", 20 * US)
        event.wait()
        gpu.launch("third", 10 * US)

    for own in played(2, device(1 * US), body):
        assert own.end_ps == 1 * US + 10 * US + 50 * US + 10 * US
        assert own.busy_ps == 40 * US
        assert own.exposed == {Cause("all_reduce", "world"): 30 * US}
