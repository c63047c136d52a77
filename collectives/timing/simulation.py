"""Simulation of collectives on a network that need not exist.

A job is planned once (`collectives.timing.job.plan`), then evaluated by an engine.  Three engines, one
answer:

    makespan  all ranks at once with NumPy, where every step's sharing can be solved at once
    events    every message through `sim.Network`, the steps of all ranks as rows of arrays
    ranks     the same, each rank by itself: the plainest and slowest, to which the others are held

Where several apply they agree to the picosecond.  All run the very programs that `collectives.proof.proof`
proves and the real transports carry out.  Two more ways are formulas, and say so in the result
(`collectives.timing.closed_forms`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Unpack

import simpy

from collectives.catalogue.selectors import NCCL
from collectives.catalogue.verification import verify
from collectives.errors import NotExactError, NotSupportedError, ProgramError
from collectives.program import Algorithm, Program
from collectives.timing.assumptions import Assumptions, Counted, asked_topology
from collectives.timing.closed_forms import (
    ClosedForm,
    as_the_library,
    closed_form_of,
    is_known_of_the_library,
)
from collectives.timing.floor import TOO_LONG
from collectives.timing.formulas.nccl.protocol import with_protocol
from collectives.timing.job import Job, PlannedJob, plan
from collectives.timing.observation import Observation
from collectives.timing.queues import (
    CallSpan,
    EngineName,
    collective_queue,
    goes_out_of_step,
    run_until,
    spans_out_of_step,
)
from collectives.timing.rows.row_execution import OutOfStepError
from collectives.timing.run import Run
from sim.network import Network
from sim.network.recorder import Recorder
from sim.scenario import Scenario
from sim.scenario.conditions import Condition
from sim.topology import Topology
from sim.topology.placement import Placement, places

if TYPE_CHECKING:
    from sim.topology.description import NetworkDescription

Engine: TypeAlias = Literal["auto", "makespan", "events", "ranks"]

_UNSEEN = (
    "observe: messages are seen by engine='events' and 'ranks' alone, not by makespan or a closed form; "
    "leave observe out, or take events and model='links'"
)

T = TypeVar("T")


def simulate(
    algorithm: str | Program | Algorithm,
    *,
    nbytes: int,
    topology: Topology | None = None,
    network: str | NetworkDescription | None = None,
    num_ranks: int | None = None,
    collective: str = "all_reduce",
    engine: Engine = "auto",
    itemsize: int = 1,
    placement: Placement = "packed",
    conditions: Sequence[Condition] = (),
    assumptions: Assumptions | None = None,
    observe: bool = False,
    watch: Callable[[int], None] | None = None,
    **counted: Unpack[Counted],
) -> Run:
    """Predict the time of one collective in which all ranks start together.

    Model: a message waits for its path's latency, then shares the bandwidth of its links fairly
    (max-min).  See ``docs/modelling.md``.

    Args:
        algorithm: a name, ``FILE.py:FUNCTION``, a program or an `Algorithm`; its parameter
            ``ranks_per_node``, if it has one that is not given, is that of *topology*.  Or ``auto``:
            that which costs least on *topology* (see `collectives.timing.cost`), or is fastest in a table.
            Or ``nvls``: reduction in the switches, by a closed form.  Or ``native``: what the vendor runs,
            known over Gloo (see `collectives.catalogue.native`), and of NCCL to ``model="nccl"``.
        nbytes: size of the buffer, as nccl-tests counts it.
        topology: links alone, unless *assumptions* or *counted* say otherwise.
        network: a network, or its name, that brings along what a real run on it would use (see
            `collectives.timing.assumptions`); instead of *topology*.
        num_ranks: of *network*; by default as many as it states.
        collective: for names and bare programs.
        engine: ``auto`` takes *makespan* where it is exact, else *events*.  ``ranks`` is as exact as both
            and slower: event by event, each rank by itself.
        itemsize: bytes of an element; chunks hold whole elements.
        placement: where the ranks are: ``packed``, ``round_robin``, or a place for each rank.
        conditions: under which the cluster works (see `sim.scenario`).  Ranks in them are places of
            *topology*; times count from the start of the collective.
        assumptions: what is counted, instead of what *topology* or *network* brings along.
        observe: record every message, for `Run.trace` and the times of `Run.links`; not with *makespan*,
            so *auto* takes *events*.
        watch: called again and again during *events* and *ranks* with the virtual time reached, in
            picoseconds.
        counted: what is counted otherwise, by the names of `collectives.timing.assumptions.Counted`:
            ``model="links"``, ``overhead="1us"``, … Of the library under *conditions* the links say what
            these add.

    Raises:
        ProgramError: the program deadlocks.
        LinkFailedError: a message was lost with a link; names the messages.
        ConditionError: a condition that cannot be on *topology*.
        NotExactError: ``engine="makespan"``, and it cannot give the exact time.
        NotSupportedError: the model does not apply to what was asked.
        ValueError: sizes are negative or do not fit, or a quantity or placement cannot be.
    """
    topology = asked_topology(topology, network, num_ranks, assumptions)
    assumed = Assumptions.on(topology, network, assumptions, counted)
    job = Job(
        algorithm,
        nbytes,
        collective=collective,
        placement=placement,
        itemsize=itemsize,
        software=assumed.software,
    )

    scenario, (job,) = _held([job], topology, conditions)
    formula = closed_form_of(algorithm, assumed.model)
    if formula is as_the_library:
        job.software.check_of_library(str(algorithm))
    if formula is as_the_library and not is_known_of_the_library(collective, topology):
        launched = job.software.launched_once(len(places(placement, topology)))
        formula, job = None, replace(job, algorithm=NCCL, software=launched)
    if formula is None:
        return evaluate(plan(job, scenario), engine, observe=observe, watch=watch)
    if observe:
        raise NotSupportedError(_UNSEEN)
    if job.software.is_around_calls:
        raise NotSupportedError(
            "call_overhead, copy_bandwidth: a closed form knows of neither; leave them out"
        )
    if formula is as_the_library and conditions:
        return _under_conditions(formula, job, scenario, engine)
    return formula(job, scenario)


def _under_conditions(formula: ClosedForm, job: Job, scenario: Scenario, engine: Engine) -> Run:
    """Return what the library's own choice takes by *formula*, and what conditions add to it on the links.

    What the program that stands for it lacks of that time comes before its first step, so that links which
    change meanwhile have changed by then.
    """
    usual = Scenario.of(scenario.base, ())
    alone = formula(job, usual)
    job = replace(job, algorithm=NCCL)
    without = evaluate(plan(job, usual), engine).time_ps
    if (lacks := alone.time_ps - without) > 0:
        job, without = replace(job, software=replace(job.software, call_overhead=f"{lacks}ps")), alone.time_ps
    with_them = evaluate(plan(job, scenario), engine).time_ps
    time_ps = max(alone.time_ps + with_them - without, 0)
    return replace(
        alone,
        time_ps=time_ps,
        conditions=tuple(map(str, scenario.conditions)),
        interval_seconds=None,
        latency_ps=None,
    )


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

    scenario, jobs = _held(jobs, topology, conditions)
    planned = [plan(job, scenario) for job in jobs]
    through = [one.scenario for one in planned if one.scenario.further is not None]
    if len(through) > 1 and any(one.further and one.further.names for one in through):
        raise NotSupportedError(
            f"jobs on one network: expected one at most by FILE.xml, got {len(through)}; take "
            "transport_model='ideal', which leaves thread blocks out"
        )
    scenario = (*through, scenario)[0]
    planned = [replace(one, scenario=scenario) for one in planned]
    recorder = Recorder(scenario.topology) if observe else None
    seen = [None if recorder is None else Observation(one, recorder, len(jobs) > 1) for one in planned]
    spans = _carry_out(planned, "events", seen)
    return [
        Run.of(one, span.end_ps - one.start_ps, engine="events", start_ps=one.start_ps, observation=watched)
        for one, span, watched in zip(planned, spans, seen, strict=True)
    ]


def _held(
    jobs: Sequence[Job], topology: Topology, conditions: Sequence[Condition]
) -> tuple[Scenario, list[Job]]:
    """Return the scenario by the protocol of *jobs*, and both as they are where buffers fit into caches.

    Jobs are as their files say.

    Raises:
        NotSupportedError: jobs differ in their protocol, which is one of the whole network.
    """
    jobs = [job.as_its_file_says(topology) for job in jobs]
    protocols = {job.software.protocol for job in jobs}
    if len(protocols) > 1:
        raise NotSupportedError("jobs on one network: expected one protocol of all, got several")
    if (protocol := protocols.pop()) is not None:
        topology = with_protocol(topology, protocol)
    held = sum(job.held_nbytes(topology) for job in jobs)
    cache = topology.cache
    if cache is None or held > cache.nbytes:
        return Scenario.of(topology, conditions), jobs
    return (
        Scenario.of(topology.holding(held), conditions),
        [replace(job, software=job.software.copying_faster(cache.copy_speedup)) for job in jobs],
    )


def evaluate(
    planned: PlannedJob,
    engine: Engine = "auto",
    *,
    observe: bool = False,
    watch: Callable[[int], None] | None = None,
) -> Run:
    """Return what *planned* comes to; see `simulate`, also for the arguments.

    All its ranks start with it, but for late ones.
    """
    if observe and engine == "makespan":
        raise NotSupportedError(_UNSEEN)
    if observe and engine == "auto":
        engine = "events"

    observation = Observation(planned, Recorder(planned.scenario.topology)) if observe else None
    (span,), used = with_engine(engine, lambda name: _carry_out([planned], name, [observation], watch))
    start_ps = planned.start_ps
    return Run.of(planned, span.end_ps - start_ps, engine=used, start_ps=start_ps, observation=observation)


def with_engine(engine: Engine, attempt: Callable[[EngineName], T]) -> tuple[T, EngineName]:
    """Return what *attempt* returns, and with which engine: ``auto`` tries *makespan*, then *events*.

    Raises:
        NotExactError: *makespan* was asked for, and cannot give the exact time.
        NotSupportedError: a time does not fit into 64 bits.
        ValueError: there is no such engine.
    """
    if engine not in ("auto", "makespan", "events", "ranks"):
        raise ValueError(f"engine must be 'auto', 'makespan', 'events' or 'ranks', got {engine!r}")
    try:
        if engine != "auto":
            return attempt(engine), engine
        try:
            return attempt("makespan"), "makespan"
        except NotExactError:
            return attempt("events"), "events"
    except OverflowError:
        raise NotSupportedError(f"engine {engine}: {TOO_LONG}") from None


def network_for(
    engine: EngineName, env: simpy.Environment, scenario: Scenario, recorder: Recorder | None = None
) -> Network | None:
    """Return the network of *scenario*, for *ranks* a plain one; None for *makespan*, which needs none.

    Raises:
        NotExactError: a condition is one that *makespan* cannot follow; names it.
    """
    if engine != "makespan":
        return scenario.network(env, recorder, accelerated=engine == "events")
    if scenario.events_only is not None:
        raise NotExactError(f"{scenario.events_only}: only events follow it; use engine='events'")
    return None


def _carry_out(
    jobs: Sequence[PlannedJob],
    engine: EngineName,
    seen: Sequence[Observation | None],
    watch: Callable[[int], None] | None = None,
) -> list[CallSpan]:
    """Return when each of *jobs* began and ended, alone on the network of their scenario.

    Raises:
        ProgramError: a program deadlocks; of a single one says which ranks wait for what.
    """
    tries = engine == "events" and seen[0] is None and all(map(goes_out_of_step, jobs))
    jitters = any(one.rank_overhead.jitter is not None for one in jobs)  # so hardly any set out together
    if tries and jitters:
        return spans_out_of_step(jobs, watch)
    env = simpy.Environment(initial_time=0)
    recorder = None if seen[0] is None else seen[0].recorder
    network = network_for(engine, env, jobs[0].scenario, recorder)

    def submit(planned: PlannedJob, observation: Observation | None) -> simpy.Event:
        return _submit(env, planned, engine, network, observation, lasting=not tries)

    def started(planned: PlannedJob, observation: Observation | None) -> Any:
        yield env.timeout(planned.start_ps)
        return (yield submit(planned, observation))

    running = [
        env.process(started(planned, observation)) if planned.start_ps else submit(planned, observation)
        for planned, observation in zip(jobs, seen, strict=True)
    ]
    try:
        run_until(env, env.all_of(running), watch)
    except OutOfStepError:
        return spans_out_of_step(jobs, watch)
    except ProgramError:
        if len(jobs) == 1:
            verify(jobs[0].algorithm, len(jobs[0].hosts))
        raise
    spans: list[Any] = [event.value for event in running]
    return spans


def _submit(
    env: simpy.Environment,
    planned: PlannedJob,
    engine: EngineName,
    network: Network | None,
    observation: Observation | None,
    *,
    lasting: bool,
) -> simpy.Event:
    queue = collective_queue(
        env,
        planned.scenario.topology,
        engine=engine,
        itemsize=planned.itemsize,
        hosts=planned.hosts,
        rank_overhead=planned.rank_overhead,
        transport_model=planned.transport_model,
        network=network,
        observer=observation,
        lasting=lasting,
    )
    return queue.submit(planned.algorithm, planned.nbytes)
