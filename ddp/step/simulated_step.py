"""Simulated training steps: a recorded backward pass in virtual time, through the reducer that trains.

A step is a period of the steady state.  Where a strategy hides communication in the next forward pass,
that pass is computed too, and all its parameters are needed in it; so at its end nothing is in flight, and
from there on everything repeats: the step is the time from the end of one forward pass to that of the next.

Assumptions: every rank computes exactly as the profile says, so one reducer stands for all and the
ranks launch together, but for late ones, which do everything so much later; buckets are those of a
steady state, in ready order; a forward pass mirrors the backward pass (`Profile.forward_pieces`), and
begins when the buffers of rank 0 have reached all, as torch's DDP sends them; FSDP sends none.
Unless inefficiencies are asked for (`ddp.step.inefficiencies`), communication and computation do not slow
each other down, and the optimizer costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Unpack

import simpy

from collectives.catalogue.selectors import NATIVE, NCCL, NVLS, is_one_kernel
from collectives.errors import NotExactError, NotSupportedError
from collectives.timing import Assumptions, Engine, with_engine
from collectives.timing.assumptions import Counted, asked_topology
from collectives.timing.floor import check_floor, floor_ps
from collectives.timing.formulas.nccl.protocol import with_protocol
from collectives.timing.queues import EngineName, run_until
from collectives.timing.ranks.attention import Attention
from collectives.timing.rows.makespan import Evaluated
from collectives.timing.thread_blocks import of_its_file, protocol_of, through_blocks
from ddp.profiles import Profile
from ddp.reduction.bucketing import bucket_limits
from ddp.reduction.overlap import Strategy, resolve_strategy
from ddp.reduction.strategies.fsdp import Fsdp
from ddp.reduction.strategies.plan import (
    ALL_REDUCE,
    BROADCAST,
    REDUCE_SCATTER,
    Layout,
    LinearCost,
    PassTiming,
    calibration_sizes,
)
from ddp.reduction.strategies.strategy import Barrier
from ddp.reduction.timings import BucketRun
from ddp.step.communication import (
    WHOLE,
    ByFormula,
    Choice,
    Communication,
    FormulaParts,
    communication_on,
    name_of,
    settled,
)
from ddp.step.fidelity import Fidelity, affordable, messages_in
from ddp.step.inefficiencies import inefficiencies_on
from ddp.step.replicated import Replicated
from ddp.step.sharded import Sharded
from ddp.step.step_run import StepRun
from ddp.step.timeline import BUFFERS, Timeline
from sim.scenario import Scenario
from sim.scenario.conditions import Condition
from sim.topology import Topology

if TYPE_CHECKING:
    from sim.topology.description import NetworkDescription

CLOSED_FORM = "closed form"
"""What is named as the engine where no messages were simulated."""


def simulate_step(
    profile: Profile,
    *,
    topology: Topology | None = None,
    network: str | NetworkDescription | None = None,
    num_ranks: int | None = None,
    strategy: str | Strategy = "wait_free",
    bucket_cap_mb: float | None = 25,
    bucket_cap_mb_list: Sequence[float] | None = None,
    algorithm: Choice | None = None,
    engine: Engine = "auto",
    conditions: Sequence[Condition] = (),
    assumptions: Assumptions | None = None,
    parts: FormulaParts = WHOLE,
    **counted: Unpack[Counted],
) -> StepRun:
    """Predict one data-parallel training step on all ranks of a network.

    Args:
        profile: what every rank computes, and when its gradients become ready.
        topology: links alone, on which rings all-reduce, unless other arguments say otherwise; with one rank
            there is no communication.
        network: a network, or its name, that brings along what a real run on it would use and lose (see
            `collectives.timing.assumptions`); instead of *topology*.
        num_ranks: of *network*; by default as many as it states.
        strategy: an overlap strategy or its name, such as ``priority:credits=2``.
        bucket_cap_mb: see `ddp.reduction.bucketing.bucket_limits`; None is torch's default.
        bucket_cap_mb_list: of the first bucket, the second and so on; wins over *bucket_cap_mb*.
        algorithm: of all-reduce; a name, a program, ``FILE.py:FUNCTION``, ``auto`` for each bucket's size,
            ``native`` for what the vendor runs (see `collectives.catalogue.native`), or a `Selector`.
        engine: see `collectives.timing.simulation.simulate`.  With ``auto``, and without conditions, less is
            counted of a step of very many messages, and the result says so (see `ddp.step.fidelity`).
        conditions: under which the cluster works (see `sim.scenario`).  A late rank begins its step, and
            all that is in it, so much later.
        assumptions: what is counted, instead of what *topology* or *network* brings along.
        parts: of a closed form's times, longer or shorter than they are; nothing is held to the floor then.
        counted: what is counted otherwise, by the names of `collectives.timing.assumptions.Counted`:
            ``inefficiencies="all"``, ``transport_model="gloo"``, …

    Raises:
        NotSupportedError: a rank is slow, so that one reducer cannot stand for all; or the model does not
            apply to what was asked.
        UnitError, ValueError: a quantity, a protocol or a model that cannot be.
        ConditionError: a condition that cannot be on *topology*.
        LinkFailedError: a message was lost with a link; names the messages.
        ReducerError: the strategy broke a rule.
        BucketingError, UnknownStrategyError, UnknownInefficiencyError, UnknownAlgorithmError: an argument is
            wrong.
    """
    topology = asked_topology(topology, network, num_ranks, assumptions)
    overlap, order = resolve_strategy(strategy), profile.ready_order()
    assumed = Assumptions.on(topology, network, assumptions, counted, on_gpu=isinstance(overlap, Fsdp))
    algorithm = algorithm or assumed.algorithm
    software = assumed.software
    if algorithm == NATIVE and topology.hardware is not None and software.transport.name == "nccl":
        algorithm = NCCL
    name_of_algorithm = name_of(algorithm)
    algorithm = of_its_file(algorithm)
    software = replace(software, protocol=protocol_of(algorithm, software, topology))
    if software.protocol is not None:
        topology = with_protocol(topology, software.protocol)
    scenario = Scenario.of(topology, conditions)
    scenario, thread_blocks = through_blocks(scenario, algorithm, range(topology.num_ranks), software)
    if scenario.slowest is not None:
        raise NotSupportedError(
            "simulate_step: one reducer stands for all ranks, which must compute equally fast; leave out "
            f"the factor of {scenario.slowest}, or run a script with collectives.virtual.run"
        )
    limits = bucket_limits(bucket_cap_mb, bucket_cap_mb_list)
    sketch = overlap.plan(_layout(profile, limits, order, LinearCost(1, 1)))
    sizes = [gradient.nbytes for gradient in profile.gradients]
    itemsize = math.gcd(*(g.nbytes // g.numel for g in profile.gradients if g.numel)) or 1
    unsent = topology.num_ranks == 1 or isinstance(overlap, Fsdp)
    broadcasts = [] if unsent else [-(-own // itemsize) * itemsize for own in profile.broadcasts()]
    sent = [(launch.collective, sketch.nbytes(launch.bucket, sizes)) for launch in sketch.launches]
    sent += [(BROADCAST, nbytes) for nbytes in broadcasts] * overlap.num_passes
    assumed = settled(assumed, algorithm, scenario)
    lost = inefficiencies_on(assumed, scenario, profile, algorithm)
    compute_ps = profile.compute_ps * overlap.num_passes
    alone_ps = max(compute_ps + lost.optimizer_ps, lost.input_alone_ps)
    profile = profile.slowed(lost.late)

    def simulated(fidelity: Fidelity, engine: Engine) -> tuple[Timeline, int, Communication, EngineName]:
        completes = fidelity.assumed.software.transport
        completes.check_overlap("simulate_step")
        on_call = completes.progress == "calls"
        _check_calls(on_call, completes.name, scenario, overlap)
        communication = communication_on(
            scenario,
            algorithm,
            fidelity.assumed,
            each_size_once=fidelity.each_size_once,
            on_lines=fidelity.on_lines,
            parts=parts,
        )

        def replayed(
            name: EngineName, attention: Attention | None = None, earlier: list[Evaluated] | None = None
        ) -> tuple[Timeline, int]:
            env = simpy.Environment(initial_time=0)
            queue = communication.queue(env, name, itemsize, attention, earlier)
            timeline = Timeline(env, queue, topology.num_ranks, lost, "bucket")
            step: Replicated | Sharded
            if isinstance(overlap, Fsdp):
                timeline.noun = "unit"
                step = Sharded(timeline, profile, overlap)
            else:
                timed = overlap.needs_timing
                cost = _cost(communication, topology.num_ranks, name, itemsize) if timed else None
                plan = overlap.plan(_layout(profile, limits, order, cost))
                step = Replicated(timeline, profile, plan, overlap, broadcasts)
            return timeline, run_until(env, env.process(step.step()))

        def attempt(name: EngineName) -> tuple[Timeline, int]:
            if not on_call or completes.late_sends:
                return replayed(name)
            return _with_own_calls(partial(replayed, name))

        (timeline, time_ps), name = with_engine(engine, attempt)
        return timeline, time_ps, communication, name

    if engine == "auto" and not scenario.conditions:
        count = messages_in(assumed, algorithm, sent, topology)
        fidelity = affordable(assumed, count, one_by_one=False)
        try:
            timeline, time_ps, communication, name = simulated(fidelity, "makespan")
        except NotExactError:
            fidelity = affordable(assumed, count, one_by_one=True)
            timeline, time_ps, communication, name = simulated(fidelity, "events")
    else:
        fidelity = Fidelity(assumed)
        timeline, time_ps, communication, name = simulated(fidelity, engine)
    assumed = fidelity.assumed
    by_formula = isinstance(communication, ByFormula)
    runs = tuple(run for run in timeline.runs if run.bucket != BUFFERS)
    floor = _floor_ps(profile, compute_ps, runs, overlap, scenario.at_best, by_formula)
    late_ps = max(scenario.delays_ps.values(), default=0)
    time_ps = max(time_ps, compute_ps + late_ps, lost.input_ps)
    if parts == WHOLE:
        check_floor(time_ps, floor, f"a step of {profile.name} with {name_of_algorithm} on {topology.name}")
    timeline.trace.metadata.update(
        profile=profile.name,
        topology=topology.name,
        ranks=topology.num_ranks,
        algorithm=name_of_algorithm,
        strategy=overlap.name,
        model=str(assumed),
        note="rank 0 stands for all",
    )
    return StepRun(
        time_ps,
        compute_ps,
        floor,
        runs,
        CLOSED_FORM if by_formula else name,
        timeline.trace,
        assumed.model if by_formula else "links",
        assumed.software.transport.name,
        alone_ps=alone_ps,
        inefficiencies=lost.terms,
        without_device=lost.without_device,
        each_size_once=fidelity.each_size_once and not by_formula,
        on_lines=fidelity.on_lines and not by_formula,
        thread_blocks=thread_blocks,
        in_one_kernel=is_one_kernel(algorithm),
        in_switches=algorithm == NVLS and by_formula,
        buffers=tuple(run for run in timeline.runs if run.bucket == BUFFERS),
    )


def _check_calls(on_call: bool, transport: str, scenario: Scenario, strategy: Strategy) -> None:
    """Check that collectives that go on when their rank calls can be followed by one reducer for all ranks.

    Raises:
        NotSupportedError: they cannot.
    """
    if on_call and scenario.delays_ps:
        raise NotSupportedError(
            f"simulate_step: with transport_model={transport!r} collectives go on when their rank calls, and "
            "one reducer stands for all ranks, which must call at the same times; leave out the late ranks, "
            "or run a script with collectives.virtual.run"
        )
    if on_call and isinstance(strategy, Fsdp):
        raise NotSupportedError(
            f"fsdp is simulated on GPUs, whose collectives go on by themselves, and with the transport model "
            f"{transport!r} they go on when their rank calls: take transport_model='nccl' "
            "(--transport-model nccl), or a network that names its GPUs ([hardware])"
        )


def _with_own_calls(
    replayed: Callable[[Attention, list[Evaluated]], tuple[Timeline, int]],
) -> tuple[Timeline, int]:
    """Return the replay whose collectives, one after another, go on at its own calls, and at no other time.

    When a rank calls depends on how long it waits, and that on its collectives, which go on when it calls.
    So a step is replayed with the calls that the last replay made, until it makes those that were assumed.
    What a replay does up to some time depends on the calls before that time alone; so each replay is right
    for longer than the one before it, and the last is right altogether.  Collectives that were over by then
    are not evaluated again.
    """
    attention, earlier = Attention((), 0), list[Evaluated]()
    while True:
        timeline, time_ps = replayed(attention, earlier)
        made = timeline.attention()
        if made == attention:
            return timeline, time_ps
        attention = made


def compute_charges(profile: Profile, strategy: str | Strategy) -> dict[str, int]:
    """Return what each piece of a step costs, in picoseconds, for `sim.Cluster`.

    Where *strategy* lets a forward pass begin before all parameters have arrived, the forward pass is in
    pieces too: ``forward:NAME`` is what it computes before it needs a parameter, after the one before.
    """
    charges = dict(profile.compute_charges())
    if resolve_strategy(strategy).barrier is Barrier.USE:
        order, works = profile.forward_pieces()
        names = [f"forward:{profile.gradients[index].name}" for index in order]
        charges |= zip([*names, "forward"], works, strict=True)
    return charges


def _layout(profile: Profile, limits: tuple[int, ...], order: list[int], cost: LinearCost | None) -> Layout:
    ready = tuple(gradient.ready_ps for gradient in profile.gradients)
    return Layout(
        [gradient.nbytes for gradient in profile.gradients],
        [gradient.dtype for gradient in profile.gradients],
        limits,
        order,
        None if cost is None else PassTiming(ready, cost),
    )


def _cost(communication: Communication, num_ranks: int, engine: EngineName, itemsize: int) -> LinearCost:
    """Return the line through two all-reduces, each on an idle network."""
    sizes = calibration_sizes(num_ranks)
    small, large = (communication.takes_ps(ALL_REDUCE, nbytes, engine, itemsize) for nbytes in sizes)
    return LinearCost.through((sizes[0], small), (sizes[1], large))


def _floor_ps(
    profile: Profile,
    compute_ps: int,
    runs: tuple[BucketRun, ...],
    strategy: Strategy,
    topology: Topology,
    in_switches: bool,
) -> int:
    """Return what no step can go below: its compute, and its bytes once they are ready."""
    sharded = isinstance(strategy, Fsdp)
    collective = REDUCE_SCATTER if sharded else ALL_REDUCE
    hidden_ps = profile.forward_ps if strategy.barrier is Barrier.USE else 0
    reduced = [run for run in runs if not sharded or run.collective == REDUCE_SCATTER]
    last = max(reduced, key=lambda run: run.complete_ps)

    def floor(nbytes: int) -> int:
        return floor_ps(collective, nbytes, topology, in_network=in_switches) - hidden_ps

    first_ps = 0 if sharded else min(run.complete_ps for run in runs) + floor(profile.nbytes)
    return max(compute_ps, first_ps, last.complete_ps + floor(last.nbytes))
