"""A collective that some ranks of a network carry out: what to simulate.

A job says who takes part, what they compute and by which algorithm.  On a topology it becomes a
`PlacedJob`, which knows all that it needs to run: places, one algorithm, and what ranks add to the
time of the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from collectives.catalogue.resolve import resolve_algorithm
from collectives.catalogue.selectors import Fixed, parse_auto
from collectives.models.cost import selector_on
from collectives.models.floor import check_floor, floor_ps
from collectives.program import Algorithm, Program
from collectives.program.placement import on_nodes
from sim.scenario import Scenario
from sim.scenario.rank_overhead import RankOverhead
from sim.topology import Topology
from sim.topology.placement import Placement, places
from sim.units import Quantity, parse_time


@dataclass(frozen=True)
class Job:
    """One collective of a group of ranks.

    Attributes:
        algorithm: a name, ``FILE.py:FUNCTION``, a program or an `Algorithm`; its parameter
            ``ranks_per_node``, if it has one that is not given, is that of the topology.  Or ``auto``:
            that which costs least there (see `collectives.models.cost`), or is fastest in a table.
        nbytes: size of the buffer, as nccl-tests counts it.
        collective: for names and bare programs.
        placement: ``packed``, ``round_robin``, or the place of each rank (see `sim.topology.placement`).
        itemsize: bytes of an element; chunks hold whole elements.
        start: when the ranks begin, ``"1ms"`` or seconds.
        overhead: of each message, on either side (see `sim.scenario.rank_overhead`).
        reduction_bandwidth: at which a rank reduces; None: reducing takes no time.
    """

    algorithm: str | Program | Algorithm
    nbytes: int
    collective: str = "all_reduce"
    placement: Placement = "packed"
    itemsize: int = 1
    start: Quantity = 0
    overhead: Quantity = 0
    reduction_bandwidth: Quantity | None = None

    def on(self, topology: Topology, scenario: Scenario | None = None) -> PlacedJob:
        """Return this job on *topology*, in a *scenario* of that; by default without conditions.

        Raises:
            ValueError: sizes are negative or do not fit.
            TopologyError, UnitError: a placement or a quantity that cannot be.
        """
        if self.nbytes < 0 or self.itemsize < 1 or self.nbytes % self.itemsize:
            raise ValueError(
                "nbytes must be a multiple of itemsize and not negative, "
                f"got {self.nbytes} and {self.itemsize}"
            )
        scenario = scenario or Scenario(topology)
        hosts = places(self.placement, topology)
        rank_overhead = scenario.rank_overhead(
            RankOverhead.of(self.overhead, self.reduction_bandwidth), hosts
        )
        return PlacedJob(self, topology, hosts, rank_overhead, parse_time(self.start), scenario)


@dataclass(frozen=True)
class PlacedJob:
    """A job on a topology.

    Attributes:
        job: what was asked for.
        topology: the network.
        hosts: the place of each rank.
        rank_overhead: what ranks add to the time of the network.
        start_ps: when they begin.
        scenario: the topology under the conditions that hold.
    """

    job: Job
    topology: Topology
    hosts: tuple[int, ...]
    rank_overhead: RankOverhead
    start_ps: int
    scenario: Scenario

    @cached_property
    def algorithm(self) -> Algorithm:
        """The program of every rank; it knows which of them share a node.

        Raises:
            UnknownAlgorithmError, AlgorithmFileError: see `collectives.catalogue.resolve`.
        """
        wanted, collective = self.job.algorithm, self.job.collective
        if parse_auto(wanted) is None:
            return on_nodes(resolve_algorithm(wanted, collective), self.topology.ranks_per_node, self.hosts)
        assert isinstance(wanted, str)
        selector = selector_on(self.topology, wanted, self.hosts, self.rank_overhead)
        selected = selector.select(collective, self.job.nbytes)
        assert selected is not None, "on a simulated network there is no native"
        return selected

    @property
    def selector(self) -> Fixed:
        """Selects the algorithm for every size."""
        return Fixed({self.algorithm.collective: self.algorithm})

    def floor_ps(self) -> int:
        """Return below which no algorithm can be, in picoseconds (see `collectives.models.floor`)."""
        root = self.algorithm.parameters.get("root", 0)
        best = self.scenario.at_best
        return floor_ps(self.algorithm.collective, self.job.nbytes, best, root, self.hosts)

    def check(self, time_ps: int) -> int:
        """Return the floor under *time_ps*.

        Raises:
            BelowFloorError: it lies below.
        """
        floor = self.floor_ps()
        check_floor(time_ps, floor, f"{self.algorithm} on {self.topology.name}, {self.job.nbytes} bytes")
        return floor
