"""A collective among ranks of a network: what was asked for, and the plan to carry it out.

A `Job` says who takes part, what they compute and by which algorithm, in the words of whoever asks.
`plan` settles all of it once, under the conditions of a network: the program of every rank, their places,
and what they add to the time of the network.  An engine then needs nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

from collectives.catalogue.admission import admitted, is_shipped
from collectives.catalogue.native import by_itself, native_over
from collectives.catalogue.resolve import resolve_algorithm
from collectives.catalogue.selectors import NATIVE, NCCL, is_one_kernel, parse_auto
from collectives.errors import NotSupportedError
from collectives.execution.transport_model import IDEAL, TransportModel
from collectives.program import Algorithm, Program
from collectives.program.chunking import Chunking
from collectives.program.placement import on_nodes
from collectives.program.program_key import ProgramKey
from collectives.timing.assumptions import Software
from collectives.timing.cost import selector_on
from collectives.timing.thread_blocks import of_its_file, protocol_of, through_blocks
from sim.scenario import Scenario
from sim.scenario.rank_overhead import RankOverhead
from sim.topology import Topology
from sim.topology.placement import Placement, places
from sim.units import Quantity, parse_time

MAX_RANK_STEPS = 1 << 32
"""Steps of all ranks together that are simulated: some minutes, at about 30 ns each (ring, 16,384 ranks)."""


@dataclass(frozen=True)
class Job:
    """One collective of a group of ranks.

    Attributes:
        algorithm, nbytes, collective, placement, itemsize: as for `collectives.timing.simulate`.  ``nccl`` is
            what NCCL would choose (see `collectives.timing.formulas.nccl.choice`).
        start: when the ranks begin, ``"1ms"`` or seconds.
        software: what code adds to the wire.

    Raises:
        ValueError: *nbytes* is negative, or no multiple of *itemsize*.
    """

    algorithm: str | Program | Algorithm
    nbytes: int
    collective: str = "all_reduce"
    placement: Placement = "packed"
    itemsize: int = 1
    start: Quantity = 0
    software: Software = field(default_factory=Software)

    def __post_init__(self) -> None:
        if self.nbytes < 0 or self.itemsize < 1 or self.nbytes % self.itemsize:
            raise ValueError(
                "nbytes must be a multiple of itemsize and not negative, "
                f"got {self.nbytes} and {self.itemsize}"
            )

    def as_its_file_says(self, topology: Topology) -> Job:
        """Return the same with the program, and the protocol, of the file that its algorithm names, if any.

        Raises:
            AlgorithmFileError: see `collectives.catalogue.resolve`.
        """
        algorithm = of_its_file(self.algorithm, self.collective)
        protocol = protocol_of(algorithm, self.software, topology)
        return replace(self, algorithm=algorithm, software=replace(self.software, protocol=protocol))

    def held_nbytes(self, topology: Topology) -> int:
        """Return the bytes of the buffers of all ranks together."""
        return self.nbytes * len(places(self.placement, topology))


@dataclass(frozen=True)
class PlannedJob:
    """A job of which everything is settled; make one by `plan`.

    Attributes:
        algorithm: the program of every rank; it knows which of them share a node.
        nbytes: size of the buffer, as nccl-tests counts it.
        itemsize: bytes of an element.
        hosts: the place of each rank in the topology.
        rank_overhead: what ranks add to the time of the network.
        start_ps: when they begin, in picoseconds.
        scenario: the topology, and the conditions that hold on it.
        transport_model: how a step is completed.
        thread_blocks: what is counted of those that its file states, in words.
    """

    algorithm: Algorithm
    nbytes: int
    itemsize: int
    hosts: tuple[int, ...]
    rank_overhead: RankOverhead
    start_ps: int
    scenario: Scenario
    transport_model: TransportModel = IDEAL
    thread_blocks: str = ""

    @property
    def chunking(self) -> Chunking:
        """How the program divides the buffer."""
        return Chunking.of(self.algorithm, len(self.hosts), self.nbytes // self.itemsize, self.itemsize)


def plan(job: Job, scenario: Scenario) -> PlannedJob:
    """Return how *job* is carried out in *scenario*.

    Raises:
        TopologyError, UnitError: a placement or a quantity that cannot be.
        UnknownAlgorithmError, AlgorithmFileError: see `collectives.catalogue.resolve`.
        NotSupportedError: what the vendor runs is not known for the transport model, or ranks take too many
            steps.
        ValueError: there is no such transport model.
    """
    hosts = places(job.placement, scenario.base)
    rank_overhead = scenario.rank_overhead(job.software.rank_overhead(), hosts)
    if is_one_kernel(job.algorithm):
        rank_overhead = rank_overhead.in_one_kernel()
    software, model = job.software, job.software.transport
    algorithm = _algorithm_of(job, scenario, hosts, rank_overhead)
    _check_work(algorithm, len(hosts))
    if algorithm.thread_blocks is not None:
        software = software.launched_once(len(hosts))
    if around_ps := software.around_ps(algorithm.collective, len(hosts), job.nbytes):
        delays_ps = rank_overhead.delays_of(len(hosts)) + around_ps
        rank_overhead = rank_overhead.with_late(dict(enumerate(delays_ps.tolist())))
    scenario, thread_blocks = through_blocks(scenario, algorithm, hosts, job.software)
    return PlannedJob(
        algorithm=algorithm,
        nbytes=job.nbytes,
        itemsize=job.itemsize,
        hosts=hosts,
        rank_overhead=rank_overhead,
        start_ps=parse_time(job.start),
        scenario=scenario,
        transport_model=by_itself(model) if job.algorithm == NATIVE else model,
        thread_blocks=thread_blocks,
    )


def _check_work(algorithm: Algorithm, num_ranks: int) -> None:
    """Check that a simulation comes to an end in some minutes, where it is known how many steps it takes.

    Raises:
        NotSupportedError: it would not.
    """
    num_steps = _num_steps(ProgramKey.of(algorithm), num_ranks) if is_shipped(algorithm) else 0
    if num_steps * num_ranks > MAX_RANK_STEPS:
        raise NotSupportedError(
            f"{algorithm} on {num_ranks} ranks: {num_steps} steps of each, "
            f"{num_steps * num_ranks:.1e} in all, where at most {MAX_RANK_STEPS:.1e} are simulated; "
            "take fewer ranks, or an algorithm of fewer steps"
        )


@lru_cache(maxsize=1024)  # some programs count their steps by going through them
def _num_steps(program: ProgramKey, num_ranks: int) -> int:
    """Return the declared number of steps; 0 where none is declared."""
    cost = program.algorithm.cost(num_ranks)
    return 0 if cost is None else cost.num_steps


def _algorithm_of(
    job: Job, scenario: Scenario, hosts: tuple[int, ...], rank_overhead: RankOverhead
) -> Algorithm:
    """Return the program that *job* means for ranks at *hosts*; of ``auto``, that which is best there."""
    topology = scenario.base
    if job.algorithm == NATIVE:
        native = native_over(job.software.transport, len(hosts), job.itemsize)
        return native.select(job.collective, job.nbytes)
    if job.algorithm != NCCL and parse_auto(job.algorithm) is None:
        algorithm = resolve_algorithm(job.algorithm, job.collective)
        return admitted(on_nodes(algorithm, topology.ranks_per_node, hosts), len(hosts))
    assert isinstance(job.algorithm, str)
    selected = selector_on(topology, job.algorithm, hosts, rank_overhead).select(job.collective, job.nbytes)
    assert selected is not None, "native has been settled"
    return selected
