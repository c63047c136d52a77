"""How long a collective takes on a network that need not exist.

Two engines, one answer: ``makespan`` evaluates all ranks at once where messages never share a
link, ``events`` runs every message through `sim.Network` and knows sharing.  Where both apply
they agree to the picosecond.  Both run the very programs that `collectives.proof` proves and
the real transports carry out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import simpy

from collectives.bandwidth import algbw, busbw
from collectives.choice import Fixed, parse_auto
from collectives.cost import selector_on
from collectives.errors import NotExactError, ProgramError
from collectives.floor import check_floor, floor_ps
from collectives.placement import on_nodes
from collectives.program import Algorithm, Program
from collectives.proof import verify
from collectives.queues import EngineName, Span, collective_queue, run_until
from collectives.resolve import resolve_algorithm
from sim.topology import Topology
from sim.units import to_seconds

Engine: TypeAlias = Literal["auto", "makespan", "events"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """A simulated collective.

    Attributes:
        seconds: until the last rank is done.
        floor_seconds: below which no algorithm can be on this network (see `collectives.floor`).
        engine: ``makespan`` or ``events``.
        algorithm: name and parameters; what ``auto`` has chosen.
        collective: what was computed.
        nbytes: size of the buffer, as nccl-tests counts it.
        num_ranks: number of ranks.
        time_ps: the exact result, of which *seconds* is the nearest float.
        topology: name of the network.
    """

    seconds: float
    floor_seconds: float
    engine: str
    algorithm: str
    collective: str
    nbytes: int
    num_ranks: int
    time_ps: int
    topology: str

    @property
    def algbw(self) -> float:
        """Algorithm bandwidth in bytes/s, as nccl-tests defines it."""
        return algbw(self.nbytes, self.seconds)

    @property
    def busbw(self) -> float:
        """Bus bandwidth in bytes/s, as nccl-tests defines it."""
        return busbw(self.collective, self.nbytes, self.seconds, self.num_ranks)


def simulate(
    algorithm: str | Program | Algorithm,
    *,
    nbytes: int,
    topology: Topology,
    collective: str = "all_reduce",
    engine: Engine = "auto",
    itemsize: int = 1,
) -> Run:
    """Predict the time of one collective in which all ranks start together.

    Model: a message waits for its path's latency, then shares the bandwidth of its links fairly
    (max-min); no protocol overhead, no cost of the reduction itself.  See ``docs/modelling.md``.

    Args:
        algorithm: a name, ``FILE.py:FUNCTION``, a program or an `Algorithm`; its parameter
            ``ranks_per_node``, if it has one that is not given, is that of *topology*.  Or ``auto``:
            that which costs least on *topology* (see `collectives.cost`), or is fastest in a table.
        nbytes: size of the buffer, as nccl-tests counts it.
        topology: the network; every one of its ranks takes part.
        collective: for names and bare programs.
        engine: ``auto`` takes *makespan* where it is exact, else *events*.
        itemsize: bytes of an element; chunks hold whole elements.

    Raises:
        ProgramError: the program deadlocks.
        NotExactError: ``engine="makespan"``, and messages share a link.
        ValueError: sizes are negative or do not fit.
    """
    chosen = _chosen(topology, algorithm, collective, nbytes)
    if nbytes < 0 or itemsize < 1 or nbytes % itemsize:
        raise ValueError(
            f"nbytes must be a multiple of itemsize and not negative, got {nbytes} and {itemsize}"
        )

    def attempt(name: EngineName) -> Span:
        env = simpy.Environment(initial_time=0)
        selector = Fixed({chosen.collective: chosen})
        queue = collective_queue(env, topology, selector, chosen.collective, engine=name, itemsize=itemsize)
        span: Span = run_until(env, queue.submit(nbytes))
        return span

    try:
        span, used = with_engine(engine, attempt)
    except ProgramError:
        verify(chosen, topology.num_ranks)  # shows which ranks wait for what
        raise
    floor = floor_ps(chosen.collective, nbytes, topology, root=chosen.parameters.get("root", 0))
    check_floor(span.end_ps, floor, f"{chosen} on {topology.name}, {nbytes} bytes")
    return Run(
        seconds=to_seconds(span.end_ps),
        floor_seconds=to_seconds(floor),
        engine=used,
        algorithm=str(chosen),
        collective=chosen.collective,
        nbytes=nbytes,
        num_ranks=topology.num_ranks,
        time_ps=span.end_ps,
        topology=topology.name,
    )


def _chosen(
    topology: Topology, algorithm: str | Program | Algorithm, collective: str, nbytes: int
) -> Algorithm:
    """Return what *algorithm* means for all ranks of *topology*; it knows which of them share a node."""
    if parse_auto(algorithm) is None:
        resolved = resolve_algorithm(algorithm, collective)
        return on_nodes(resolved, topology.ranks_per_node, range(topology.num_ranks))
    selected = selector_on(topology, algorithm).select(collective, nbytes)
    assert selected is not None, "on a simulated network there is no native"
    return selected


def with_engine(engine: Engine, attempt: Callable[[EngineName], T]) -> tuple[T, EngineName]:
    """Return what *attempt* returns, and with which engine: ``auto`` tries *makespan* first.

    Raises:
        NotExactError: *makespan* was asked for, and cannot give the exact time.
    """
    if engine not in ("auto", "makespan", "events"):
        raise ValueError(f"engine must be 'auto', 'makespan' or 'events', got {engine!r}")
    if engine != "events":
        try:
            return attempt("makespan"), "makespan"
        except NotExactError:
            if engine == "makespan":
                raise
    return attempt("events"), "events"
