"""Report of a virtual run: the time of each iteration, computed or waited.

A rank's time is computation, which a model has charged, or waiting: for messages, for ranks that are
late, for the rendezvous.  Waiting is the communication that nothing hides, so it is called exposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from collectives.simulation.links import Links
from collectives.virtual.computation import ComputeModel
from collectives.virtual.faults import VirtualCondition
from collectives.virtual.iterations import End, Iterations
from collectives.virtual.notices import Notices
from collectives.virtual.world import VirtualWorld
from sim.cluster import Cluster
from sim.scenario.rank_overhead import RankOverhead
from sim.units import to_seconds


@dataclass(frozen=True)
class Spent:
    """A piece of a rank's time; attributes in seconds.

    Attributes:
        seconds: all of it.
        compute_seconds: what the rank computed.
        exposed_seconds: the rest, in which it waited.
    """

    seconds: float
    compute_seconds: float
    exposed_seconds: float

    @classmethod
    def between(cls, start: End, end: End) -> Spent:
        """Return the time from *start* to *end*."""
        time_ps, computed_ps = end.now_ps - start.now_ps, end.computed_ps - start.computed_ps
        return cls(to_seconds(time_ps), to_seconds(computed_ps), to_seconds(time_ps - computed_ps))


@dataclass(frozen=True)
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
        rank_overhead: what ranks added to the time of the network, where no condition held.
        compute: how computation was charged, in words.
        repeats: whether the run takes the same time again.
        conditions: that held, in words.
        notices: what else is to be said.
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

    @classmethod
    def of(
        cls, cluster: Cluster, algorithm: object, model: ComputeModel, conditions: Sequence[VirtualCondition]
    ) -> VirtualReport:
        """Return what the run on *cluster* has taken."""
        scenario, time_ps = cluster.scenario, max(cluster.times_ps)
        start = [End(scenario.delays_ps.get(rank, 0), 0) for rank in range(len(cluster.times_ps))]
        last = [End(*of_rank) for of_rank in zip(cluster.times_ps, cluster.computed_ps, strict=True)]
        finished_by_all = zip(*Iterations.of(cluster).ends, strict=False)
        ends = [tuple(start), *finished_by_all]

        return cls(
            seconds=to_seconds(time_ps),
            ranks=tuple(map(Spent.between, start, last)),
            iterations=tuple(tuple(map(Spent.between, before, after)) for before, after in pairwise(ends)),
            links=Links(
                scenario.topology,
                cluster.network.link_bytes,
                time_ps,
                mean_bandwidth=scenario.mean_bandwidth(0, time_ps),
            ),
            network=cluster.topology.name,
            algorithm=_spell(algorithm),
            transport_model=VirtualWorld.of(cluster).transport_model.name,
            rank_overhead=VirtualWorld.of(cluster).rank_overhead,
            compute=model.name,
            repeats=model.repeats,
            conditions=tuple(map(str, conditions)),
            notices=Notices.of(cluster).texts,
        )

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @property
    def iteration_seconds(self) -> tuple[float, ...]:
        """How long each iteration has taken, on rank 0."""
        return tuple(iteration[0].seconds for iteration in self.iterations)

    def steady(self, rank: int = 0) -> Spent | None:
        """Return the iteration of median length on *rank*, of all but the first; None if there is none.

        Of an even number it is the shorter of the two in the middle, so that its parts add up.
        """
        spent = sorted((iteration[rank] for iteration in self.iterations[1:]), key=lambda own: own.seconds)
        return spent[(len(spent) - 1) // 2] if spent else None

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON types; times are in seconds."""
        steady = self.steady()
        return {
            "seconds": self.seconds,
            "num_ranks": self.num_ranks,
            "steady_iteration": None if steady is None else asdict(steady),
            "iterations": [
                {
                    "seconds": iteration[0].seconds,
                    "compute_seconds": iteration[0].compute_seconds,
                    "exposed_seconds": iteration[0].exposed_seconds,
                    "slowest_rank_seconds": max(spent.seconds for spent in iteration),
                    "median_rank_seconds": median(spent.seconds for spent in iteration),
                }
                for iteration in self.iterations
            ],
            "ranks": [asdict(spent) for spent in self.ranks],
            "links": [asdict(self.links[link]) for link in self.links.busiest],
            "network": self.network,
            "algorithm": self.algorithm,
            "transport_model": self.transport_model,
            "overhead_seconds": to_seconds(self.rank_overhead.overhead_ps),
            "arrival_overhead_seconds": to_seconds(self.rank_overhead.arrival_overhead_ps),
            "reduction_bandwidth": self.rank_overhead.reduction_bandwidth,
            "compute": self.compute,
            "repeats": self.repeats,
            "conditions": list(self.conditions),
            "notices": list(self.notices),
        }


def _spell(algorithm: object) -> str:
    if isinstance(algorithm, dict):
        return ", ".join(f"{collective} by {_spell(own)}" for collective, own in algorithm.items())
    return getattr(algorithm, "__name__", None) or str(algorithm)
