"""Simulated training steps: a recorded backward pass in virtual time, through the reducer that trains.

A step is a period of the steady state.  Where a strategy hides communication in the next forward pass,
that pass is computed too, and all its parameters are needed in it; so at its end nothing is in flight, and
from there on everything repeats: the step is the time from the end of one forward pass to that of the next.

Assumptions: every rank computes exactly as the profile says, so one reducer stands for all and the
ranks launch together, but for late ones, which do everything so much later; buckets are those of a
steady state, in ready order; communication and computation do not slow each other down; the optimizer
costs nothing; a forward pass mirrors the backward pass (`ddp.simulation.replay.needs`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import simpy

from collectives.catalogue.resolve import resolve_algorithm
from collectives.errors import NotSupportedError
from collectives.models.cost import selector_on
from collectives.models.floor import check_floor, floor_ps
from collectives.program import Algorithm
from collectives.simulation import Engine, network_for, with_engine
from collectives.simulation.engines.queues import CallSpan, EngineName, collective_queue, run_until
from ddp.profiles import Profile
from ddp.reduction.bucketing import bucket_limits
from ddp.reduction.overlap import Strategy, resolve_strategy
from ddp.reduction.strategies.plan import Layout, LinearCost, PassTiming, calibration_sizes
from ddp.reduction.strategies.strategy import Barrier
from ddp.reduction.timings import BucketRun
from ddp.simulation.replay import Replay, needs
from ddp.simulation.step_run import StepRun
from sim.scenario import Scenario
from sim.scenario.conditions import Condition
from sim.scenario.rank_overhead import RankOverhead
from sim.topology import Topology


def simulate_step(
    profile: Profile,
    *,
    topology: Topology,
    strategy: str | Strategy = "wait_free",
    bucket_cap_mb: float | None = 25,
    bucket_cap_mb_list: Sequence[float] | None = None,
    algorithm: str | Callable[..., Any] | Algorithm = "ring",
    engine: Engine = "auto",
    conditions: Sequence[Condition] = (),
) -> StepRun:
    """Predict one data-parallel training step on all ranks of *topology*.

    Args:
        profile: what every rank computes, and when its gradients become ready.
        topology: the network; with one rank there is no communication.
        strategy: an overlap strategy or its name, such as ``priority:credits=2``.
        bucket_cap_mb: see `ddp.reduction.bucketing.bucket_limits`; None is torch's default.
        bucket_cap_mb_list: of the first bucket, the second and so on; wins over *bucket_cap_mb*.
        algorithm: of all-reduce; a name, a program, ``FILE.py:FUNCTION``, or ``auto`` for each bucket's size.
        engine: see `collectives.simulation.simulation.simulate`.
        conditions: under which the cluster works (see `sim.scenario`).  A late rank begins its step, and
            all that is in it, so much later.

    Raises:
        NotSupportedError: a rank is slow, so that one reducer cannot stand for all.
        ConditionError: a condition that cannot be on *topology*.
        LinkFailedError: a message was lost with a link; names the messages.
        ReducerError: the strategy broke a rule.
        BucketingError, UnknownStrategyError, UnknownAlgorithmError: an argument is wrong.
    """
    scenario = Scenario.of(topology, conditions)
    if scenario.slowest is not None:
        raise NotSupportedError(
            "simulate_step: one reducer stands for all ranks, which must compute equally fast; leave out "
            f"the factor of {scenario.slowest}, or run a script with collectives.virtual.run"
        )
    selector, overlap = selector_on(topology, algorithm), resolve_strategy(strategy)

    def select(collective: str, nbytes: int) -> Algorithm:
        selected = selector.select(collective, nbytes)
        assert selected is not None, "in virtual time there is no native"
        return selected

    name_of_algorithm = algorithm if isinstance(algorithm, str) else str(resolve_algorithm(algorithm))
    order = profile.ready_order()
    itemsize = math.gcd(*(g.nbytes // g.numel for g in profile.gradients if g.numel)) or 1
    limits = bucket_limits(bucket_cap_mb, bucket_cap_mb_list)

    def attempt(name: EngineName) -> Replay:
        env = simpy.Environment(initial_time=0)
        cost = _cost(topology, select, name, itemsize) if overlap.needs_timing else None
        plan = overlap.plan(_layout(profile, limits, order, cost))
        queue = collective_queue(
            env,
            scenario.topology,
            engine=name,
            itemsize=itemsize,
            rank_overhead=scenario.rank_overhead(RankOverhead(), range(topology.num_ranks)),
            network=network_for(name, env, scenario),
        )
        replay = Replay(env, profile, plan, overlap, queue, select, topology.num_ranks)
        run_until(env, env.process(replay.step(order)))
        return replay

    replay, used = with_engine(engine, attempt)
    runs = tuple(replay.runs)
    compute_ps = profile.compute_ps * overlap.num_passes
    floor = _floor_ps(profile, compute_ps, runs, overlap, scenario.at_best)
    time_ps = max(replay.time_ps, compute_ps + max(scenario.delays_ps.values(), default=0))
    check_floor(time_ps, floor, f"a step of {profile.name} with {name_of_algorithm} on {topology.name}")
    replay.trace.metadata.update(
        profile=profile.name,
        topology=topology.name,
        ranks=topology.num_ranks,
        algorithm=name_of_algorithm,
        strategy=overlap.name,
        note="rank 0 stands for all",
    )
    return StepRun(time_ps, compute_ps, floor, runs, used, replay.trace)


def compute_charges(profile: Profile, strategy: str | Strategy) -> dict[str, int]:
    """Return what each piece of a step costs, in picoseconds, for `sim.Cluster`.

    Where *strategy* lets a forward pass begin before all parameters have arrived, the forward pass is in
    pieces too: ``forward:NAME`` is what it computes before it needs a parameter, after the one before.
    """
    charges = dict(profile.compute_charges())
    if resolve_strategy(strategy).barrier is Barrier.USE:
        done_ps = 0
        for needed_ps, index in needs(profile):
            charges[f"forward:{profile.gradients[index].name}"] = needed_ps - done_ps
            done_ps = needed_ps
        charges["forward"] = profile.forward_ps - done_ps
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


def _cost(
    topology: Topology, select: Callable[[str, int], Algorithm], engine: EngineName, itemsize: int
) -> LinearCost:
    """Return the line through two all-reduces, each simulated on an idle network."""

    def point(nbytes: int) -> tuple[int, int]:
        env = simpy.Environment(initial_time=0)
        queue = collective_queue(env, topology, engine=engine, itemsize=itemsize)
        span: CallSpan = run_until(env, queue.submit(select("all_reduce", nbytes), nbytes))
        return nbytes, span.end_ps - span.start_ps

    small, large = calibration_sizes(topology.num_ranks)
    return LinearCost.through(point(small), point(large))


def _floor_ps(
    profile: Profile, compute_ps: int, runs: tuple[BucketRun, ...], strategy: Strategy, topology: Topology
) -> int:
    """Return what no step can go below: its compute, and its bytes once they are ready."""
    hidden_ps = profile.forward_ps if strategy.barrier is Barrier.USE else 0
    last = max(runs, key=lambda run: run.complete_ps)
    return max(
        compute_ps,
        min(run.complete_ps for run in runs) + floor_ps("all_reduce", profile.nbytes, topology) - hidden_ps,
        last.complete_ps + floor_ps("all_reduce", last.nbytes, topology) - hidden_ps,
    )
