"""Result of a simulated collective: its time, its links and its trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from collectives.errors import NotSupportedError
from collectives.timing.floor import TOO_LONG, check_floor, floor_ps
from collectives.timing.formulas.bandwidth import algbw, busbw
from collectives.timing.job import Job, PlannedJob
from collectives.timing.links import Links, Traffic
from collectives.timing.observation import Observation
from sim.topology import Topology
from sim.topology.placement import places
from sim.trace import Trace
from sim.units import MAX_PS, format_time, to_seconds


@dataclass(frozen=True, repr=False)
class Run:
    """A simulated collective.

    Attributes:
        time_ps: from the start of its first rank until its last rank is done, exactly.
        floor_ps: below which no algorithm can be on this network (see `collectives.timing.floor`).
        engine: ``makespan``, ``events`` or ``ranks``, or ``closed form`` where a formula was evaluated.
        model: of the time: ``links``, ``nccl`` or ``measured``.
        algorithm: name and parameters; what ``auto`` has chosen.
        collective: what was computed.
        nbytes: size of the buffer, as nccl-tests counts it.
        num_ranks: number of ranks.
        topology: name of the network.
        transport_model: how steps were completed (see `collectives.execution.transport_model`).
        start_ps: when its first rank began.
        conditions: that held, in words.
        interval_seconds: within which nine of ten measurements are expected; None where the model has none.
        beyond: how the time goes beyond what was measured, in words; only where a model of measurements does.
        thread_blocks: what is counted of those that the program's file states, and what not, in words.
        latency_ps: the part of a closed form's time that is latency, whatever the size; None: not told apart.
    """

    time_ps: int
    floor_ps: int
    engine: str
    model: str
    algorithm: str
    collective: str
    nbytes: int
    num_ranks: int
    topology: str
    transport_model: str = "ideal"
    start_ps: int = 0
    conditions: tuple[str, ...] = ()
    interval_seconds: tuple[float, float] | None = None
    beyond: str = ""
    thread_blocks: str = ""
    latency_ps: int | None = None
    _planned: PlannedJob | None = field(default=None, compare=False)
    _observation: Observation | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return (
            f"Run({format_time(self.time_ps)}, {self.collective} of {self.nbytes} B by {self.algorithm} on "
            f"{self.num_ranks} ranks of {self.topology})"
        )

    @classmethod
    def of(
        cls,
        planned: PlannedJob,
        time_ps: int,
        *,
        engine: str,
        start_ps: int = 0,
        observation: Observation | None = None,
    ) -> Run:
        """Return the result of *planned*, which *engine* has carried out, checked against its floor.

        Raises:
            BelowFloorError: its time lies below the floor.
            NotSupportedError: it was observed, and took longer than times of links are kept.
        """
        algorithm, scenario = planned.algorithm, planned.scenario
        topology, nbytes = scenario.base, planned.nbytes
        root = algorithm.parameters.get("root", 0)

        floor = floor_ps(algorithm.collective, nbytes, scenario.at_best, root, planned.hosts)
        what = f"{algorithm} on {topology.name}, {nbytes} bytes"
        check_floor(time_ps, floor, what)
        if observation is not None and start_ps + time_ps > MAX_PS:
            raise NotSupportedError(f"{what}: {TOO_LONG}")

        return cls(
            time_ps,
            floor,
            engine,
            "links",
            str(algorithm),
            algorithm.collective,
            nbytes,
            len(planned.hosts),
            topology.name,
            planned.transport_model.name,
            start_ps,
            tuple(map(str, scenario.conditions)),
            thread_blocks=planned.thread_blocks,
            _planned=planned,
            _observation=observation,
        )

    @classmethod
    def by_formula(cls, job: Job, topology: Topology, **found: Any) -> Run:
        """Return the result of *job*, all of whose ranks start together, as a closed form has *found* it."""
        return cls(
            engine="closed form",
            collective=job.collective,
            nbytes=job.nbytes,
            num_ranks=len(places(job.placement, topology)),
            topology=topology.name,
            transport_model=job.software.transport.name,
            **found,
        )

    @property
    def seconds(self) -> float:
        """From the start of its first rank until its last rank is done: the float nearest to it."""
        return to_seconds(self.time_ps)

    @property
    def floor_seconds(self) -> float:
        """Below which no algorithm can be, in seconds."""
        return to_seconds(self.floor_ps)

    @property
    def algbw(self) -> float:
        """Algorithm bandwidth in bytes/s, as nccl-tests defines it."""
        return algbw(self.nbytes, self.seconds)

    @property
    def busbw(self) -> float:
        """Bus bandwidth in bytes/s, as nccl-tests defines it."""
        return busbw(self.collective, self.nbytes, self.seconds, self.num_ranks)

    @property
    def no_links(self) -> str:
        """Why nothing is known of single links; empty where `links` can be asked for."""
        planned, seen = self._planned, self._observation
        if planned is None:
            return f"the time of {self.algorithm} is a closed form, which says nothing of single links"
        scenario = planned.scenario
        if scenario.reroutes and (seen is None or seen.among_others or scenario.has_background):
            return (
                f"messages changed their way on {scenario.base.name}; take observe=True, one job and no "
                "Background, or leave out reroute"
            )
        return ""

    @cached_property
    def links(self) -> Links:
        """Bytes and utilisation of each link; for how long it was saturated, of a run that was observed.

        Only this collective's bytes are counted; saturated is a link by all that cross it.  A slow rank
        has links of its own behind those of the topology, such as ``rank 3 slow up``.

        Raises:
            NotSupportedError: a formula knows of no links, or messages changed their way.
        """
        planned, seen = self._planned, self._observation
        if planned is None or self.no_links:
            raise NotSupportedError(f"links: {self.no_links}")
        topology = planned.scenario.topology
        if planned.scenario.reroutes and seen is not None:
            nbytes = seen.recorder.link_bytes[: topology.num_links]
        else:
            nbytes = Traffic.of(planned).link_bytes
        saturated_ps = None if seen is None else seen.recorder.saturated_ps[: topology.num_links]
        bandwidth = planned.scenario.mean_bandwidth(self.start_ps, self.start_ps + self.time_ps)
        return Links(topology, nbytes, self.time_ps, saturated_ps, bandwidth)

    @cached_property
    def trace(self) -> Trace:
        """What each rank did when, and how full each link was (see `collectives.timing.observation`).

        Raises:
            NotSupportedError: the run was not observed.
        """
        if self._observation is None:
            raise NotSupportedError("trace: nothing was recorded; simulate with observe=True")
        return self._observation.trace(self.start_ps + self.time_ps)
