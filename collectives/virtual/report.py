"""Report of a virtual run: the time of each iteration, computed or waited.

A rank's time is computation, which a model has charged, or waiting: for messages, for ranks that are
late, for the rendezvous.  Waiting is the communication that nothing hides, so it is called exposed.

On a GPU it is the time of the compute stream: what it computes, and what it waits for, be that the host's
launches or a collective; all of it adds up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import torch

from collectives.execution.blame import spell_ranks
from collectives.timing.links import Links
from collectives.virtual.computation import ComputeModel, Roofline
from collectives.virtual.computation.totals import Utilization
from collectives.virtual.faults import VirtualCondition
from collectives.virtual.iterations import End, Iterations
from collectives.virtual.memory.memories import Memories, MemoryReport
from collectives.virtual.notices import Notices, of_version
from collectives.virtual.spent import Exposed, HostSpent, Lost, Spent
from collectives.virtual.streams.gpus import Gpus, gpu_of
from collectives.virtual.world import Carried, VirtualWorld
from sim.cluster import Cluster
from sim.scenario.rank_overhead import RankOverhead
from sim.units import to_seconds


@dataclass(frozen=True, repr=False)
class VirtualReport:
    """What the time of a run on rank threads was spent on.

    Attributes:
        seconds: until the last rank had finished.
        ranks: what each rank has spent in all.
        iterations: of each iteration, what each rank has spent in it; those that all ranks have
            finished.  The first counts from the start, and has the set-up in it.
        links: bytes over each link, and how full it was.
        network: name of the topology.
        algorithm: of the collectives, in words.
        transport_model: how their steps were completed (see `collectives.execution.transport_model`).
        timed_by: ``links``, or ``library`` where NCCL's own collectives took what NCCL's take.
        rank_overhead: what ranks added to the time of the network, where no condition held.
        compute: how computation was charged, in words.
        repeats: whether the run takes the same time again.
        conditions: that held, in words.
        notices: what else is to be said.
        mistakes: those of the notices that tell what the script does wrong.
        on_gpu: whether ranks computed on streams of a GPU.
        stands_in: whether tensors of the CPU stood for the GPU's throughout, as no rank used a CUDA device.
        ranks_simulated: how many ranks had a thread to the end.
        ranks_run: those that were run, if only to be compared with another one's.
        folded: for which ranks the thread of another one spoke, in words.
        exposed: of each iteration, what the compute stream of rank 0 has waited for, on a GPU.
        lost: of each iteration, what rank 0 has lost to each of `CAUSES`, on a GPU.
        issued: of each iteration, what has taken the time of rank 0's host, on a GPU.
        memory: what the device of the rank has held that needs most; None where it is not followed.
        utilization: what part of the peak of a GPU an iteration makes up; None where it is not known.
        carried: by which programs the collectives went, those of the largest buffers first.
        slowest: how many times as long as its device says a rank computed, as the slowest of all.
    """

    seconds: float
    ranks: tuple[Spent, ...]
    iterations: tuple[tuple[Spent, ...], ...]
    links: Links
    network: str
    algorithm: str
    transport_model: str
    rank_overhead: RankOverhead
    compute: str
    repeats: bool
    conditions: tuple[str, ...]
    notices: tuple[str, ...]
    mistakes: tuple[str, ...] = ()
    on_gpu: bool = False
    stands_in: bool = False
    ranks_simulated: int = 0
    ranks_run: tuple[int, ...] = ()
    folded: tuple[str, ...] = ()
    exposed: tuple[tuple[Exposed, ...], ...] = ()
    lost: tuple[tuple[Lost, ...], ...] = ()
    issued: tuple[tuple[HostSpent, ...], ...] = ()
    memory: MemoryReport | None = None
    utilization: Utilization | None = None
    carried: tuple[Carried, ...] = ()
    timed_by: str = "links"
    slowest: float = 1.0

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        algorithm: object,
        model: ComputeModel,
        conditions: Sequence[VirtualCondition],
        has_ended: bool = False,
    ) -> VirtualReport:
        """Return what the run on *cluster* has taken, be it that an error *has_ended* it."""
        scenario, time_ps = cluster.scenario, max(cluster.times_ps)
        start = [End(scenario.delays_ps.get(rank, 0), 0) for rank in range(len(cluster.times_ps))]
        last = [End(*of_rank) for of_rank in zip(cluster.times_ps, cluster.computed_ps, strict=True)]
        gpus, classes = Gpus.of(cluster), VirtualWorld.of(cluster).classes
        library = VirtualWorld.of(cluster).library
        on_gpu = bool(gpus.of_rank)
        for _, rank, played in gpus.played():
            if played.end_ps is not None:
                last[rank] = End.of(played.marks[-1])
        finished_by_all = zip(*Iterations.of(cluster).ends, strict=False)
        ends = [tuple(start), *finished_by_all]
        spent = partial(Spent.between, on_gpu=on_gpu)

        report = cls(
            seconds=to_seconds(time_ps),
            ranks=tuple(map(spent, start, last)),
            iterations=tuple(tuple(map(spent, before, after)) for before, after in pairwise(ends)),
            links=Links(
                scenario.topology,
                cluster.network.link_bytes + VirtualWorld.of(cluster).group_calls.link_bytes,
                time_ps,
                mean_bandwidth=scenario.mean_bandwidth(0, time_ps),
            ),
            network=cluster.topology.name,
            algorithm=_spell(algorithm),
            transport_model=VirtualWorld.of(cluster).transport_model.name,
            timed_by="library" if library is not None and library.is_used else "links",
            rank_overhead=VirtualWorld.of(cluster).rank_overhead,
            slowest=float(VirtualWorld.of(cluster).slowest),
            compute=model.name,
            stands_in=on_gpu and not gpus.are_in_use,
            repeats=model.repeats,
            conditions=tuple(map(str, conditions)),
            notices=(
                *of_version(torch.__version__),
                *(() if library is None else library.unknown),
                *Notices.of(cluster).texts,
            ),
            mistakes=Notices.of(cluster).mistakes,
            on_gpu=on_gpu,
            ranks_simulated=sum(1 for _ in classes.threads(len(last))),
            ranks_run=classes.run(len(last)),
            folded=classes.words(),
            exposed=tuple(Exposed.between(before[0], after[0]) for before, after in pairwise(ends))
            if on_gpu
            else (),
            lost=tuple(Lost.between(before[0], after[0]) for before, after in pairwise(ends))
            if on_gpu
            else (),
            issued=()
            if (device := gpu_of(model)) is None
            else tuple(HostSpent.between(before[0], after[0], device) for before, after in pairwise(ends)),
            memory=Memories.of(cluster).report(has_ended),
            carried=tuple(
                sorted(VirtualWorld.of(cluster).carried.values(), key=lambda own: -own.largest_bytes)
            ),
        )
        return replace(report, utilization=_utilization(cluster, model, report.steady()))

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @property
    def compared(self) -> str:
        """Which ranks were run, in words."""
        return spell_ranks(self.ranks_run)

    @property
    def iteration_seconds(self) -> tuple[float, ...]:
        """How long each iteration has taken, on rank 0."""
        return tuple(iteration[0].seconds for iteration in self.iterations)

    def __repr__(self) -> str:
        return (
            f"VirtualReport({self.seconds:.6g} s, {self.num_ranks} ranks of {self.network}, {self.compute})"
        )

    def steady(self, rank: int = 0) -> Spent | None:
        """Return the iteration of median length on *rank*, of all but the first; None if there is none.

        Of an even number it is the shorter of the two in the middle, so that its parts add up.
        """
        number = self._steady_iteration(rank)
        return None if number is None else self.iterations[number][rank]

    @property
    def exposed_by(self) -> tuple[Exposed, ...]:
        """What the compute stream of rank 0 has waited for in its `steady` iteration, on a GPU."""
        number = self._steady_iteration(0)
        return () if number is None or not self.on_gpu else self.exposed[number]

    @property
    def lost_to(self) -> tuple[Lost, ...]:
        """What rank 0 has lost in its `steady` iteration to each of `CAUSES`, on a GPU."""
        number = self._steady_iteration(0)
        return () if number is None or not self.on_gpu else self.lost[number]

    @property
    def issued_by(self) -> tuple[HostSpent, ...]:
        """What has taken the time of rank 0's host in its `steady` iteration, on a GPU."""
        number = self._steady_iteration(0)
        return () if number is None or not self.on_gpu else self.issued[number]

    def _steady_iteration(self, rank: int) -> int | None:
        by_length = sorted(range(1, len(self.iterations)), key=lambda own: self.iterations[own][rank].seconds)
        return by_length[(len(by_length) - 1) // 2] if by_length else None

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON types; times are in seconds."""
        steady = self.steady()
        return {
            "seconds": self.seconds,
            "num_ranks": self.num_ranks,
            "ranks_simulated": self.ranks_simulated,
            "ranks_run": list(self.ranks_run),
            "folded": list(self.folded),
            "steady_iteration": None if steady is None else steady.to_json(),
            "iterations": [
                {
                    **iteration[0].to_json(),
                    "slowest_rank_seconds": max(spent.seconds for spent in iteration),
                    "median_rank_seconds": median(spent.seconds for spent in iteration),
                }
                for iteration in self.iterations
            ],
            "ranks": [spent.to_json() for spent in self.ranks],
            **({"exposed_by": [asdict(own) for own in self.exposed_by]} if self.on_gpu else {}),
            **({"lost_to": self._lost_by_iteration()} if self.on_gpu else {}),
            **({"issued_by": [asdict(own) for own in self.issued_by]} if self.on_gpu else {}),
            **({} if self.memory is None else {"memory": self.memory.to_json()}),
            **({} if self.utilization is None else {"utilization": self.utilization.to_json()}),
            "carried": [own.to_json() for own in self.carried],
            "links": [asdict(self.links[link]) for link in self.links.busiest],
            "network": self.network,
            "algorithm": self.algorithm,
            "transport_model": self.transport_model,
            "timed_by": self.timed_by,
            "slowest": self.slowest,
            "overhead_seconds": to_seconds(self.rank_overhead.overhead_ps),
            "step_overhead_seconds": to_seconds(self.rank_overhead.step_ps),
            "posting_seconds": to_seconds(self.rank_overhead.posting_ps),
            "arrival_overhead_seconds": to_seconds(self.rank_overhead.arrival_overhead_ps),
            "reduction_bandwidth": self.rank_overhead.reduction_bandwidth,
            "compute": self.compute,
            "repeats": self.repeats,
            "conditions": list(self.conditions),
            "notices": list(self.notices),
            "mistakes": list(self.mistakes),
        }

    def _lost_by_iteration(self) -> list[dict[str, Any]]:
        return [
            {"iteration": number, **asdict(own)}
            for number, iteration in enumerate(self.lost, 1)
            for own in iteration
        ]


def _utilization(cluster: Cluster, model: ComputeModel, steady: Spent | None) -> Utilization | None:
    """Return what part of the GPU's peak the *steady* iteration makes up."""
    device = gpu_of(model)
    if device is None or steady is None or not isinstance(model, Roofline):
        return None
    members = Counter(thread for thread, _, _ in Gpus.of(cluster).played())
    return Utilization.of(model.totals, members, device, steady.seconds)


def _spell(algorithm: object) -> str:
    if isinstance(algorithm, dict):
        return ", ".join(f"{collective} by {_spell(own)}" for collective, own in algorithm.items())
    return getattr(algorithm, "__name__", None) or str(algorithm)
