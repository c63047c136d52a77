"""Replays a recorded backward pass in virtual time, through the reducer that trains.

    profile                                        reducer
    forward_seconds have passed                →   BackwardBegan
    a gradient's ready_seconds have passed     →   GradReady
    backward_seconds have passed               →   BackwardEnded, OptimizerStepped
    a collective on the queue is done          →   BucketReduced
    the next forward pass comes to a parameter →   ParameterNeeded

    reducer                                        virtual time
    LaunchBucket                               →   the collective joins the communicator's queue
    AwaitBucket                                →   the step waits for it
    UpdateBucket                               →   nothing: the optimizer costs no time
    FinishBackward                             →   nothing is in flight any more

A step is a period of the steady state.  Where a strategy hides communication in the next forward pass,
that pass is computed too, and all its parameters are needed in it; so at its end nothing is in flight, and
from there on everything repeats: the step is the time from the end of one forward pass to that of the next.

Assumptions: every rank computes exactly as the profile says, so one reducer stands for all and the
ranks launch together, but for late ones, which do everything so much later; buckets are those of a
steady state, in ready order; communication and computation do not slow each other down; the optimizer
costs nothing; a forward pass mirrors the backward pass (`needs`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import simpy

from collectives.choice import Selector
from collectives.cost import selector_on
from collectives.engines.queues import CollectiveQueue, EngineName, Span, collective_queue, run_until
from collectives.errors import NotSupportedError
from collectives.floor import check_floor, floor_ps
from collectives.program import Algorithm
from collectives.resolve import resolve_algorithm
from collectives.simulation import Engine, network_for, with_engine
from ddp.bucketing import bucket_limits
from ddp.calibration import calibration_sizes
from ddp.events import (
    AwaitBucket,
    BackwardBegan,
    BackwardEnded,
    BucketReduced,
    Event,
    FinishBackward,
    GradReady,
    LaunchBucket,
    OptimizerStepped,
    ParameterNeeded,
    UpdateBucket,
)
from ddp.overlap import Strategy, resolve_strategy
from ddp.profile import Profile
from ddp.reducer import Phase, Reducer
from ddp.step_run import StepRun
from ddp.strategies.plan import ALL_GATHER, REDUCE_SCATTER, Cost, Layout, Plan, Timing
from ddp.strategies.strategy import Barrier
from ddp.timings import BucketRun
from sim.conditions import Condition
from sim.pace import Pace
from sim.setting import Setting
from sim.topology import Topology
from sim.trace import Trace

SimProcess = Generator[simpy.Event, Any, None]


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
        bucket_cap_mb: see `ddp.bucketing.bucket_limits`; None is torch's default.
        bucket_cap_mb_list: of the first bucket, the second and so on; wins over *bucket_cap_mb*.
        algorithm: of all-reduce; a name, a program, ``FILE.py:FUNCTION``, or ``auto`` for each bucket's size.
        engine: see `collectives.simulation.simulate`.
        conditions: under which the cluster works (see `sim.conditions`).  A late rank begins its step, and
            all that is in it, so much later.

    Raises:
        NotSupportedError: a rank is slow, so that one reducer cannot stand for all.
        ConditionError: a condition that cannot be on *topology*.
        LinkFailedError: a message was lost with a link; names the messages.
        ReducerError: the strategy broke a rule.
        BucketingError, UnknownStrategyError, UnknownAlgorithmError: an argument is wrong.
    """
    setting = Setting.of(topology, conditions)
    if setting.slowest is not None:
        raise NotSupportedError(
            "simulate_step: one reducer stands for all ranks, which must compute equally fast; leave out "
            f"the factor of {setting.slowest}, or run a script with run_virtual"
        )
    selector, overlap = selector_on(topology, algorithm), resolve_strategy(strategy)
    name_of_algorithm = algorithm if isinstance(algorithm, str) else str(resolve_algorithm(algorithm))
    order = profile.ready_order()
    itemsize = math.gcd(*(g.nbytes // g.numel for g in profile.gradients if g.numel)) or 1
    limits = bucket_limits(bucket_cap_mb, bucket_cap_mb_list)

    def attempt(name: EngineName) -> _Replay:
        env = simpy.Environment(initial_time=0)
        cost = _cost(topology, selector, name, itemsize) if overlap.needs_timing else None
        plan = overlap.plan(_layout(profile, limits, order, cost))
        queue = collective_queue(
            env,
            setting.topology,
            selector,
            engine=name,
            itemsize=itemsize,
            pace=setting.pace(Pace(), range(topology.num_ranks)),
            network=network_for(name, env, setting),
        )
        replay = _Replay(env, profile, plan, overlap, queue, topology.num_ranks)
        run_until(env, env.process(replay.step(order)))
        return replay

    replay, used = with_engine(engine, attempt)
    runs = replay.bucket_runs()
    compute_ps = profile.compute_ps * overlap.num_passes
    floor = _floor_ps(profile, compute_ps, runs, overlap, setting.at_best)
    time_ps = max(replay.time_ps, compute_ps + max(setting.delays_ps.values(), default=0))
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


def needs(profile: Profile) -> list[tuple[int, int]]:
    """Return when a forward pass needs each parameter: (picoseconds since it began, index), in order.

    No profile says that.  A forward pass is taken to mirror the backward pass: what becomes ready when a
    part x of the backward pass is left is needed when a part x of the forward pass is done.
    """
    forward, backward = profile.forward_ps, profile.backward_ps
    when = [
        ((backward - gradient.ready_ps) * forward // backward if backward else 0)
        for gradient in profile.gradients
    ]
    return [(when[index], index) for index in reversed(profile.ready_order())]


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


def _layout(profile: Profile, limits: tuple[int, ...], order: list[int], cost: Cost | None) -> Layout:
    ready = tuple(gradient.ready_ps for gradient in profile.gradients)
    return Layout(
        [gradient.nbytes for gradient in profile.gradients],
        [gradient.dtype for gradient in profile.gradients],
        limits,
        order,
        None if cost is None else Timing(ready, cost),
    )


def _cost(topology: Topology, selector: Selector, engine: EngineName, itemsize: int) -> Cost:
    """Return the line through two all-reduces, each simulated on an idle network."""

    def point(nbytes: int) -> tuple[int, int]:
        env = simpy.Environment(initial_time=0)
        queue = collective_queue(env, topology, selector, engine=engine, itemsize=itemsize)
        span: Span = run_until(env, queue.submit(nbytes))
        return nbytes, span.end_ps - span.start_ps

    small, large = calibration_sizes(topology.num_ranks)
    return Cost.through(point(small), point(large))


class _Replay:
    """One step in virtual time: feeds the reducer and obeys it."""

    def __init__(
        self,
        env: simpy.Environment,
        profile: Profile,
        plan: Plan,
        strategy: Strategy,
        queue: CollectiveQueue,
        num_ranks: int,
    ) -> None:
        self.env = env
        self.profile = profile
        self.plan = plan
        self.strategy = strategy
        self.queue = queue
        self.num_ranks = num_ranks
        self.reducer = Reducer(plan, strategy, [gradient.name for gradient in profile.gradients])
        self.carried: dict[int, simpy.Process] = {}
        self.launches: list[_Carried] = []
        self.trace = Trace()
        self.backward_ps = 0
        self.time_ps = 0

    def step(self, order: list[int]) -> SimProcess:
        """Compute the step, gradient by gradient, and what of the next one belongs to it."""
        profile = self.profile
        for _ in range(self.strategy.num_passes - 1):
            yield from self.compute("forward", int(self.env.now) + profile.forward_ps)
            yield from self.compute("backward", int(self.env.now) + profile.backward_ps)
        yield from self.compute("forward", int(self.env.now) + profile.forward_ps)
        began_ps = self.backward_ps = int(self.env.now)
        yield from self.feed(BackwardBegan())
        for index in order:
            gradient = profile.gradients[index]
            yield from self.compute(f"gradient:{gradient.name}", began_ps + gradient.ready_ps)
            yield from self.feed(GradReady(index))
        yield from self.compute("backward", began_ps + profile.backward_ps)
        yield from self.feed(BackwardEnded())
        if self.reducer.phase is Phase.HOLDING:
            yield from self.feed(OptimizerStepped())
        self.time_ps = int(self.env.now)
        if self.strategy.barrier is Barrier.USE:
            yield from self.next_forward()
            self.time_ps = int(self.env.now) - profile.forward_ps

    def next_forward(self) -> SimProcess:
        """Compute a forward pass that waits for each parameter when it needs it."""
        done_ps = 0
        for needed_ps, index in needs(self.profile):
            yield from self.compute("forward", int(self.env.now) + needed_ps - done_ps)
            done_ps = needed_ps
            yield from self.feed(ParameterNeeded(index))
        yield from self.compute("forward", int(self.env.now) + self.profile.forward_ps - done_ps)

    def compute(self, name: str, until_ps: int) -> SimProcess:
        """Let the time until *until_ps* pass with computation."""
        start_ps = int(self.env.now)
        if until_ps > start_ps:
            yield self.env.timeout(until_ps - start_ps)
            self.trace.span(0, "compute", name, start_ps, until_ps)

    def feed(self, event: Event) -> SimProcess:
        """Tell the reducer and obey its commands."""
        for command in self.reducer.handle(event):
            match command:
                case LaunchBucket(bucket, collective):
                    self.carried[bucket] = self.env.process(self.carry(bucket, collective))
                case AwaitBucket(bucket):
                    yield from self.wait(bucket)
                case UpdateBucket() | FinishBackward():
                    pass

    def wait(self, bucket: int) -> SimProcess:
        """Wait until the collective of a bucket that is in flight is done."""
        since_ps = int(self.env.now)
        carried = yield self.carried[bucket]
        carried.exposed_ps += int(self.env.now) - since_ps
        self.note(f"wait for {carried.collective}", "wait", carried, since_ps, int(self.env.now))

    def carry(self, bucket: int, collective: str) -> Generator[simpy.Event, Any, _Carried]:
        """Take a bucket through the queue and report that it has arrived."""
        carried = _Carried(bucket, collective, self.nbytes(bucket, collective), int(self.env.now))
        self.launches.append(carried)
        span: Span = yield self.queue.submit(carried.nbytes, collective)
        carried.start_ps, carried.end_ps = span.start_ps, span.end_ps
        self.note(collective, "communication", carried, span.start_ps, span.end_ps)
        yield from self.feed(BucketReduced(bucket))
        return carried

    def note(self, what: str, lane: str, carried: _Carried, start_ps: int, end_ps: int) -> None:
        """Record a span of a bucket, if it takes any time or is a collective."""
        if end_ps > start_ps or lane != "wait":
            facts = {"bucket": carried.bucket, "collective": carried.collective, "nbytes": carried.nbytes}
            self.trace.span(0, lane, f"{what} bucket {carried.bucket}", start_ps, end_ps, **facts)

    def nbytes(self, bucket: int, collective: str) -> int:
        """Return the bytes that travel: equal whole elements for every rank, where each has its part."""
        gradients = self.profile.gradients
        nbytes = self.plan.nbytes(bucket, [gradient.nbytes for gradient in gradients])
        if collective not in (REDUCE_SCATTER, ALL_GATHER):
            return nbytes
        members = [gradients[parameter] for parameter in self.plan.buckets[bucket].parameters]
        unit = self.num_ranks * next((own.nbytes // own.numel for own in members if own.numel), 1)
        return -(-nbytes // unit) * unit

    def bucket_runs(self) -> tuple[BucketRun, ...]:
        """Return what became of every bucket, in the order of launch."""
        gradients, buckets = self.profile.gradients, self.plan.buckets
        return tuple(
            BucketRun(
                own.bucket,
                own.collective,
                own.nbytes,
                self.backward_ps + max(gradients[p].ready_ps for p in buckets[own.bucket].parameters),
                own.launched_ps,
                own.start_ps,
                own.end_ps,
                own.exposed_ps,
            )
            for own in self.launches
        )


@dataclass(slots=True)
class _Carried:
    """A collective on its way."""

    bucket: int
    collective: str
    nbytes: int
    launched_ps: int
    start_ps: int = 0
    end_ps: int = 0
    exposed_ps: int = 0


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
