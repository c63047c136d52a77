"""Calls of the vendor's library on the links of a run: alone as long as the library's own, shared longer.

A program of ours on the links is not NCCL: it knows nothing of what a call costs NCCL before its first byte,
of its protocols, or of switches that reduce.  So a collective that goes by NCCL's own choice runs as the
program that `collectives.timing.formulas.nccl.choice` takes for it, but

* begins so much later, on each rank, that alone on its links it takes to the picosecond what
  `collectives.simulate` says of the library's choice under the model ``library``;
* and with fewer bytes on the wire where the program would take longer than the library: as many as fit; or by
  a program of few steps where its latencies alone take longer, for its steps wait for one another and NCCL's
  do not.

Max-min then decides what sharing links adds, and ranks that come late are waited for.

Assumed: what a call costs the library is the same whatever else is under way; of a call with fewer bytes on
the wire links carry fewer bytes, as they do where switches reduce.  Collectives of which the library's time
is not known (a gather, ranks unevenly divided over nodes) take what their program takes, after the launch of
a kernel; a few of some KiB from one root over nodes, of which no program here is as quick, what it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from collectives.catalogue.resolve import resolve_algorithm
from collectives.catalogue.selectors import NCCL, Selector
from collectives.errors import NotSupportedError
from collectives.execution.execute import execute
from collectives.execution.transport import Execution, Poster
from collectives.program import Algorithm
from collectives.program.chunking import Buffer, Chunking
from collectives.program.program_key import ProgramKey
from collectives.timing import Job, PlannedJob, Software, evaluate
from collectives.timing.closed_forms import as_the_library, is_known_of_the_library
from collectives.virtual.transport import SimulatedTransport
from sim.scenario import Scenario
from sim.scenario.rank_overhead import RankOverhead
from sim.topology import Topology
from sim.topology.kinds.nodes import NodesRouting

FEW_STEPS = MappingProxyType({"broadcast": "tree", "reduce": "tree"})
"""Programs of few steps; of all other collectives ``direct``, of one."""
OF_LARGE_GROUPS = MappingProxyType(
    {"all_gather": "pat", "all_reduce": "recursive_doubling", "reduce_scatter": "pat"}
)
"""Programs of as many steps as the logarithm of the ranks has, tried before ``direct`` in large groups."""
MOST_DIRECT = 256
"""Ranks of a group that is not large; of 1,024 ``direct`` has a million messages."""

CarryOut = Callable[[Algorithm, Buffer, Any, int], Execution]


@dataclass(frozen=True)
class OnLinks:
    """How a call of the library stands on the links.

    Attributes:
        chunking: of the bytes that its program sends.
        delay_ps: from a rank's coming until its first step.
    """

    chunking: Chunking
    delay_ps: int


class LibraryCalls:
    """What calls of the library come to on one network.

    Attributes:
        unknown: of which collectives the library's model does not say the time, and why; in their order.
    """

    def __init__(self, topology: Topology, software: Software) -> None:
        self.unknown: dict[str, None] = {}
        self._scenario = Scenario.of(topology, ())
        self._software = software
        self._groups: dict[tuple[int, ...], CallsOfGroup] = {}

    def of(self, hosts: tuple[int, ...]) -> CallsOfGroup:
        """Return what calls come to among ranks at *hosts*, or at places of other nodes that are alike.

        Raises:
            NotSupportedError: of the software something is asked for that the library's time has in it.
        """
        self._software.check_of_library(NCCL)
        topology, alike = self._scenario.base, hosts
        if isinstance(topology.routing, NodesRouting):
            first = min(hosts) // topology.ranks_per_node * topology.ranks_per_node
            alike = tuple(host - first for host in hosts)
        if alike not in self._groups:
            self._groups[alike] = CallsOfGroup(self._scenario, self._software, hosts, self.unknown)
        return self._groups[alike]

    @property
    def is_used(self) -> bool:
        """Whether any group goes by the library's own choice."""
        return bool(self._groups)


@dataclass
class CallsOfGroup:
    """What calls of the library come to among the ranks of a group."""

    scenario: Scenario
    software: Software
    hosts: tuple[int, ...]
    unknown: dict[str, None] = field(default_factory=dict)
    _known: dict[tuple[ProgramKey, int, int], OnLinks | None] = field(default_factory=dict)
    _selected: dict[tuple[str, int], Algorithm | None] = field(default_factory=dict)

    def select(self, chosen: Selector, collective: str, nbytes: int) -> Algorithm | None:
        """Return what stands for the library's program: what is *chosen*, or one of few steps."""
        key = collective, nbytes
        if key not in self._selected:
            program = chosen.select(collective, nbytes)
            if program is not None and not self._is_fast_enough(program, nbytes):
                program = self._of_few_steps(collective, nbytes)
            self._selected[key] = program
        return self._selected[key]

    def _of_few_steps(self, collective: str, nbytes: int) -> Algorithm:
        """Return a program of few steps, in a large group of no more messages than it takes."""
        if len(self.hosts) > MOST_DIRECT and collective in OF_LARGE_GROUPS:
            program = resolve_algorithm(OF_LARGE_GROUPS[collective], collective)
            if self._is_fast_enough(program, nbytes):
                return program
        return resolve_algorithm(FEW_STEPS.get(collective, "direct"), collective)

    def on_links(self, algorithm: Algorithm, count: int, itemsize: int) -> OnLinks | None:
        """Return how a call by *algorithm* stands on the links; None: as its program does."""
        key = ProgramKey.of(algorithm), count, itemsize
        if key not in self._known:
            self._known[key] = self._settled(algorithm, count, itemsize)
        return self._known[key]

    def _is_fast_enough(self, algorithm: Algorithm, nbytes: int) -> bool:
        """Return whether *algorithm*, with as few bytes as it needs, takes no longer than the library."""
        time_ps = self._library_ps(algorithm.collective, nbytes)
        if time_ps is None:
            return True
        return (
            self._alone_ps(algorithm, _least(Chunking.of(algorithm, len(self.hosts), nbytes, 1))) <= time_ps
        )

    def _settled(self, algorithm: Algorithm, count: int, itemsize: int) -> OnLinks | None:
        whole = Chunking.of(algorithm, len(self.hosts), count, itemsize)
        time_ps = self._library_ps(algorithm.collective, count * itemsize)
        if time_ps is None:
            launch_ps = self.software.launched_once(len(self.hosts)).around_ps(algorithm.collective, 1, 0)
            return OnLinks(whole, launch_ps)
        alone_ps = self._alone_ps(algorithm, whole)
        if alone_ps <= time_ps:
            return OnLinks(whole, time_ps - alone_ps)
        return self._with_fewer_bytes(algorithm, whole, alone_ps, time_ps)

    def _with_fewer_bytes(
        self, algorithm: Algorithm, whole: Chunking, alone_ps: int, time_ps: int
    ) -> OnLinks | None:
        """Return as many bytes as fit into *time_ps*, in equal chunks; None: not one of each.

        The time of a program is a line over such sizes, but for rounding and where other links fill up.
        """
        least = _least(whole)
        least_ps = self._alone_ps(algorithm, least)
        if least_ps > time_ps:
            return None
        most = whole.count * whole.itemsize // whole.num_chunks
        elements = 1 + (time_ps - least_ps) * max(most - 1, 0) // max(alone_ps - least_ps, 1)
        while True:
            fewer = replace(least, count=elements * whole.num_chunks)
            alone_ps = self._alone_ps(algorithm, fewer)
            if alone_ps <= time_ps:
                return OnLinks(fewer, time_ps - alone_ps)
            elements = max(1, elements - 1 - elements * (alone_ps - time_ps) // alone_ps)

    def _library_ps(self, collective: str, nbytes: int) -> int | None:
        """Return what the library's own collective takes; None: it is not known."""
        if not is_known_of_the_library(collective, self.scenario.base):
            return None
        job = Job(NCCL, nbytes, collective=collective, placement=self.hosts, software=self.software)
        try:
            return as_the_library(job, self.scenario).time_ps
        except NotSupportedError as error:
            self.unknown.setdefault(f"{error}; {collective} takes what NCCL's program does, after a launch")
            return None

    def _alone_ps(self, algorithm: Algorithm, chunking: Chunking) -> int:
        planned = PlannedJob(
            algorithm=algorithm,
            nbytes=chunking.count * chunking.itemsize,
            itemsize=chunking.itemsize,
            hosts=self.hosts,
            rank_overhead=RankOverhead(),
            start_ps=0,
            scenario=self.scenario,
            transport_model=self.software.transport,
        )
        return evaluate(planned).time_ps


def _least(whole: Chunking) -> Chunking:
    """Return the division of a byte for each chunk, or of all bytes of *whole* if it has fewer."""
    return replace(whole, count=min(whole.num_chunks, whole.count * whole.itemsize), itemsize=1)


@dataclass(frozen=True)
class LibraryPrograms:
    """Programs that stand for the library's: a `Selector` of them, and their execution by rank threads."""

    calls: CallsOfGroup
    chosen: Selector
    programs: CarryOut = execute

    def select(self, collective: str, nbytes: int) -> Algorithm | None:
        """Return the program that stands for the library's of *nbytes* bytes."""
        return self.calls.select(self.chosen, collective, nbytes)

    def carry_out(
        self, algorithm: Algorithm, buffer: Buffer, transport: Poster, fingerprint: int
    ) -> Execution:
        """Yield what is to be waited for until this rank is through; as `execute`."""
        assert isinstance(transport, SimulatedTransport)
        chunking = buffer.chunking
        assert isinstance(chunking, Chunking)
        call = self.calls.on_links(algorithm, chunking.count, chunking.itemsize)
        if call is not None:
            if call.chunking != chunking:
                transport.port(fingerprint).program.wire = Buffer(call.chunking)
            if call.delay_ps:
                yield transport.meeting_point.network.env.timeout(call.delay_ps)
        yield from self.programs(algorithm, buffer, transport, fingerprint)
