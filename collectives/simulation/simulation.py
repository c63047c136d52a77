"""How long a collective takes on a network that need not exist.

Two engines, one answer: ``makespan`` evaluates all ranks at once where every step's sharing can be solved
at once, ``events`` runs every message through `sim.Network`.  Where both apply they agree to the picosecond.
Both run the very programs that `collectives.proof.proof` proves and the real transports carry out.

Two more ways are formulas, and say so in the result: ``model="nccl"`` is what NCCL itself expects
(`collectives.models.nccl.model`), and the algorithm ``nvls`` is reduction in the switches
(`collectives.models.in_network`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import simpy

from collectives.catalogue.verification import verify
from collectives.errors import NotExactError, NotSupportedError, ProgramError
from collectives.models.floor import floor_ps
from collectives.program import Algorithm, Program
from collectives.simulation.engines.queues import EngineName, Span, collective_queue, run_until
from collectives.simulation.job import Job, PlacedJob
from collectives.simulation.observation import Observation
from collectives.simulation.run import Run
from sim.network import Network
from sim.network.recorder import Recorder
from sim.scenario import Scenario
from sim.scenario.conditions import Condition
from sim.topology import Topology
from sim.topology.placement import Placement
from sim.units import SECOND, Quantity

Engine: TypeAlias = Literal["auto", "makespan", "events"]
Model: TypeAlias = Literal["links", "nccl"]
Protocol: TypeAlias = Literal["LL", "LL128", "Simple"]

NVLS = "nvls"
"""The algorithm that is no program: switches reduce and multicast."""

_NCCL_NAMES = {
    "ring": "Ring",
    "tree": "Tree",
    "double_binary_tree": "Tree",
    "pat": "PAT",
    NVLS: "NVLS",
    "auto": None,
    "native": None,
}

T = TypeVar("T")


def simulate(
    algorithm: str | Program | Algorithm,
    *,
    nbytes: int,
    topology: Topology,
    collective: str = "all_reduce",
    engine: Engine = "auto",
    itemsize: int = 1,
    placement: Placement = "packed",
    overhead: Quantity = 0,
    reduction_bandwidth: Quantity | None = None,
    protocol: Protocol | None = None,
    conditions: Sequence[Condition] = (),
    model: Model = "links",
    observe: bool = False,
    watch: Callable[[int], None] | None = None,
) -> Run:
    """Predict the time of one collective in which all ranks start together.

    Model: a message waits for its path's latency, then shares the bandwidth of its links fairly
    (max-min).  See ``docs/modelling.md``.

    Args:
        algorithm: a name, ``FILE.py:FUNCTION``, a program or an `Algorithm`; its parameter
            ``ranks_per_node``, if it has one that is not given, is that of *topology*.  Or ``auto``:
            that which costs least on *topology* (see `collectives.models.cost`), or is fastest in a table.
            Or ``nvls``: reduction in the switches, by a closed form.
        nbytes: size of the buffer, as nccl-tests counts it.
        topology: the network.
        collective: for names and bare programs.
        engine: ``auto`` takes *makespan* where it is exact, else *events*.
        itemsize: bytes of an element; chunks hold whole elements.
        placement: where the ranks are: ``packed``, ``round_robin``, or a place for each rank.
        overhead: of each message, on either side (see `sim.scenario.rank_overhead`).
        reduction_bandwidth: at which a rank reduces; None: reducing takes no time.
        protocol: of NCCL, for what it leaves of a link and its latency (see
            `collectives.models.nccl.protocol`).
        conditions: under which the cluster works (see `sim.scenario`).  Ranks in them are places of
            *topology*; times count from the start of the collective.
        model: ``links``, or ``nccl`` for what NCCL expects, by a closed form: of its *algorithm* of that
            name, or of what it would choose (``auto``).
        observe: record every message, for `Run.trace` and the times of `Run.links`; takes *events*.
        watch: called again and again during *events* with the virtual time reached, in picoseconds.

    Raises:
        ProgramError: the program deadlocks.
        LinkFailedError: a message was lost with a link; names the messages.
        ConditionError: a condition that cannot be on *topology*.
        NotExactError: ``engine="makespan"``, and it cannot give the exact time.
        NotSupportedError: the model does not apply to what was asked.
        ValueError: sizes are negative or do not fit, or a quantity or placement cannot be.
    """
    if protocol is not None:
        from collectives.models.nccl.protocol import with_protocol

        topology = with_protocol(topology, protocol)
    job = Job(
        algorithm,
        nbytes,
        collective=collective,
        placement=placement,
        itemsize=itemsize,
        overhead=overhead,
        reduction_bandwidth=reduction_bandwidth,
    )
    placed = job.on(topology, Scenario.of(topology, conditions))
    if model not in ("links", "nccl"):
        raise ValueError(f"model must be 'links' or 'nccl', got {model!r}")
    if observe and (engine == "makespan" or model == "nccl" or algorithm == NVLS):
        raise NotSupportedError(
            "observe: messages are seen by engine='events' alone, not by makespan or a closed form; "
            "leave observe out, or take events and model='links'"
        )
    if model == "nccl":
        return _as_nccl_expects(placed)
    if algorithm == NVLS:
        return _in_the_switches(placed)
    observation = Observation(placed, Recorder(placed.scenario.topology)) if observe else None
    span, used = with_engine(
        "events" if observe else engine, lambda name: _attempt(placed, name, observation, watch)
    )
    return Run.of(placed, span.end_ps, engine=used, observation=observation)


def simulate_jobs(
    jobs: Sequence[Job],
    *,
    topology: Topology,
    conditions: Sequence[Condition] = (),
    observe: bool = False,
) -> list[Run]:
    """Predict several collectives on one network at once; jobs may share ranks, and share links.

    Each is a communicator of its own: jobs of the same ranks do not wait for each other.  All messages
    run through one `sim.Network` (``engine="events"``).

    Args:
        jobs: the collectives, at least one.
        topology: the network.
        conditions: under which the cluster works (see `sim.scenario`).  Ranks in them are places of
            *topology*; a straggler is late for every job that it takes part in.  Jitter is drawn for
            each job alike, by rank of the job.
        observe: as for `simulate`; links are saturated by the messages of all jobs together.

    Returns:
        A result for each job, from its own start to its own end.

    Raises:
        ProgramError: a program deadlocks.
        LinkFailedError: a message was lost with a link; names the messages.
        ConditionError: a condition that cannot be on *topology*.
        ValueError: there is no job; or as for `simulate`.
    """
    if not jobs:
        raise ValueError("jobs: expected at least one Job, got none")
    env = simpy.Environment(initial_time=0)
    scenario = Scenario.of(topology, conditions)
    recorder = Recorder(scenario.topology) if observe else None
    network = scenario.network(env, recorder)
    placed = [job.on(topology, scenario) for job in jobs]
    seen = [None if recorder is None else Observation(one, recorder, len(jobs) > 1) for one in placed]
    spans: list[Span] = run_until(env, env.process(_all_of(env, network, placed, seen)))
    return [
        Run.of(one, span.end_ps - span.start_ps, engine="events", start_ps=span.start_ps, observation=watched)
        for one, span, watched in zip(placed, spans, seen, strict=True)
    ]


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


def network_for(
    engine: EngineName, env: simpy.Environment, scenario: Scenario, recorder: Recorder | None = None
) -> Network | None:
    """Return the network of *scenario* for events; None for *makespan*, which needs none.

    Raises:
        NotExactError: a condition is one that *makespan* cannot follow; names it.
    """
    if engine == "events":
        return scenario.network(env, recorder)
    if scenario.events_only is not None:
        raise NotExactError(f"{scenario.events_only}: only events follow it; use engine='events'")
    return None


def _attempt(
    placed: PlacedJob,
    engine: EngineName,
    seen: Observation | None,
    watch: Callable[[int], None] | None,
) -> Span:
    env = simpy.Environment(initial_time=0)
    network = network_for(engine, env, placed.scenario, None if seen is None else seen.recorder)
    try:
        span: Span = run_until(env, _submit(env, placed, engine, network, seen), watch)
    except ProgramError:
        verify(placed.algorithm, len(placed.hosts))  # shows which ranks wait for what
        raise
    return span


def _submit(
    env: simpy.Environment,
    placed: PlacedJob,
    engine: EngineName,
    network: Network | None,
    seen: Observation | None,
) -> simpy.Event:
    queue = collective_queue(
        env,
        placed.scenario.topology,
        placed.selector,
        placed.algorithm.collective,
        engine=engine,
        itemsize=placed.job.itemsize,
        hosts=placed.hosts,
        rank_overhead=placed.rank_overhead,
        network=network,
        observer=seen,
    )
    return queue.submit(placed.job.nbytes)


def _all_of(
    env: simpy.Environment, network: Network, jobs: Sequence[PlacedJob], seen: Sequence[Observation | None]
) -> Any:
    """Start every job at its time; return their spans."""

    def one(placed: PlacedJob, observation: Observation | None) -> Any:
        yield env.timeout(placed.start_ps)
        return (yield _submit(env, placed, "events", network, observation))

    running = [env.process(one(*job)) for job in zip(jobs, seen, strict=True)]
    yield env.all_of(running)
    return [process.value for process in running]


def _refuse_conditions(placed: PlacedJob, what: str) -> None:
    if placed.scenario.conditions:
        held = ", ".join(map(str, placed.scenario.conditions))
        raise NotSupportedError(f"{what} is a closed form that knows no conditions; leave out {held}")


def _as_nccl_expects(placed: PlacedJob) -> Run:
    from collectives.models.nccl.model import predict_on

    _refuse_conditions(placed, 'model="nccl"')
    job, name = placed.job, str(placed.job.algorithm)
    if not isinstance(job.algorithm, str) or name not in _NCCL_NAMES:
        known = ", ".join(_NCCL_NAMES)
        raise NotSupportedError(f'model="nccl" knows of no algorithm {name}; expected one of {known}')
    wanted: Any = _NCCL_NAMES[name]
    best = predict_on(placed.topology, placed.hosts, job.collective, job.nbytes, wanted)
    in_switches = best.algorithm.startswith(("NVLS", "CollNet"))
    floor = floor_ps(job.collective, job.nbytes, placed.topology, 0, placed.hosts, in_network=in_switches)
    time_ps = round(best.seconds * SECOND)
    if time_ps < floor:
        raise NotSupportedError(
            f"NCCL's model expects {best.seconds:.3g} s of {best.algorithm}, less than the links of "
            f"{placed.topology.name} allow: its [hardware] and its links do not describe one system"
        )
    what = f"{best.algorithm}/{best.protocol}"
    return Run.of(placed, time_ps, engine="closed form", model="nccl", floor=floor, algorithm=what)


def _in_the_switches(placed: PlacedJob) -> Run:
    from collectives.models.in_network import in_network_ps

    job = placed.job
    _refuse_conditions(placed, NVLS)
    if not placed.rank_overhead.is_free:
        raise NotSupportedError("nvls is a closed form without overhead and reduction; leave them out")
    time_ps = in_network_ps(job.collective, job.nbytes, placed.topology, placed.hosts)
    floor = floor_ps(job.collective, job.nbytes, placed.topology, 0, placed.hosts, in_network=True)
    return Run.of(placed, time_ps, engine="closed form", floor=floor, algorithm=NVLS)
