"""Replays a recorded backward pass in virtual time, through the reducer that trains.

    profile                                        reducer
    forward_seconds have passed                →   BackwardBegan
    a gradient's ready_seconds have passed     →   GradReady
    backward_seconds have passed               →   BackwardEnded
    a collective on the queue is done          →   BucketReduced

    reducer                                        virtual time
    LaunchBucket                               →   the collective joins the communicator's queue
    AwaitBucket                                →   the step waits for it
    FinishBackward                             →   the step is over

Assumptions: every rank computes exactly as the profile says, so one reducer stands for all and the
ranks launch together, but for late ones, which do everything so much later; buckets are those of a
steady state, in ready order; communication and computation do not slow each other down; the
optimizer costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import simpy

from collectives.cost import selector_on
from collectives.errors import NotSupportedError
from collectives.floor import check_floor, floor_ps
from collectives.program import Algorithm
from collectives.queues import CollectiveQueue, EngineName, collective_queue, run_until
from collectives.resolve import resolve_algorithm
from collectives.simulation import Engine, network_for, with_engine
from ddp.bucketing import assign_buckets, bucket_limits
from ddp.overlap import Strategy, resolve_strategy
from ddp.profile import Profile
from ddp.reducer import (
    AwaitBucket,
    BackwardBegan,
    BackwardEnded,
    BucketReduced,
    Event,
    FinishBackward,
    GradReady,
    LaunchBucket,
    Reducer,
)
from sim.conditions import Condition
from sim.pace import Pace
from sim.setting import Setting
from sim.topology import Topology
from sim.trace import Trace
from sim.units import to_seconds

SimProcess = Generator[simpy.Event, Any, None]


@dataclass(frozen=True, slots=True)
class BucketRun:
    """One bucket's journey; times are picoseconds since the step began.

    Attributes:
        nbytes: its size.
        complete_ps: its last gradient was ready.
        launched_ps: the strategy let it go.
        start_ps: the collectives before it were done, and it began.
        end_ps: the last rank had the result.
    """

    nbytes: int
    complete_ps: int
    launched_ps: int
    start_ps: int
    end_ps: int


@dataclass(frozen=True, slots=True)
class StepRun:
    """A simulated training step.

    Attributes:
        time_ps: length of the step in picoseconds.
        compute_ps: of it, forward and backward pass: the length of the step on one rank.
        floor_ps: below which no algorithm and no strategy can be with these buckets.
        buckets: in the order in which they were reduced.
        engine: ``makespan`` or ``events``, see `collectives.simulation`.
        trace: compute and communication; rank 0 stands for all.
    """

    time_ps: int
    compute_ps: int
    floor_ps: int
    buckets: tuple[BucketRun, ...]
    engine: str
    trace: Trace

    @property
    def seconds(self) -> float:
        """Length of the step."""
        return to_seconds(self.time_ps)

    @property
    def compute_seconds(self) -> float:
        """Length of the step on one rank."""
        return to_seconds(self.compute_ps)

    @property
    def floor_seconds(self) -> float:
        """Below which no algorithm and no strategy can be with these buckets."""
        return to_seconds(self.floor_ps)

    @property
    def exposed_seconds(self) -> float:
        """Communication that is not hidden behind computation."""
        return to_seconds(self.time_ps - self.compute_ps)

    @property
    def communication_seconds(self) -> float:
        """Time in which a collective was running, hidden or not."""
        return to_seconds(sum(bucket.end_ps - bucket.start_ps for bucket in self.buckets))

    @property
    def efficiency(self) -> float:
        """Compute over length of the step: 1 where adding ranks costs nothing (weak scaling)."""
        return self.compute_ps / self.time_ps if self.time_ps else 1.0

    @property
    def num_buckets(self) -> int:
        """Number of buckets."""
        return len(self.buckets)


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
        strategy: an overlap strategy or its name.
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
    buckets = assign_buckets(
        [gradient.nbytes for gradient in profile.gradients],
        [gradient.dtype for gradient in profile.gradients],
        bucket_limits(bucket_cap_mb, bucket_cap_mb_list),
        order,
    )
    itemsize = math.gcd(*(g.nbytes // g.numel for g in profile.gradients if g.numel)) or 1

    def attempt(name: EngineName) -> _Replay:
        env = simpy.Environment(initial_time=0)
        queue = collective_queue(
            env,
            setting.topology,
            selector,
            engine=name,
            itemsize=itemsize,
            pace=setting.pace(Pace(), range(topology.num_ranks)),
            network=network_for(name, env, setting),
        )
        replay = _Replay(env, profile, buckets, overlap, queue)
        run_until(env, env.process(replay.step(order)))
        return replay

    replay, used = with_engine(engine, attempt)
    runs = tuple(replay.runs[bucket] for bucket in range(len(buckets)))
    floor = _floor_ps(profile, runs, setting.at_best)
    end_ps = max(replay.end_ps, profile.compute_ps + max(setting.delays_ps.values(), default=0))
    check_floor(end_ps, floor, f"a step of {profile.name} with {name_of_algorithm} on {topology.name}")
    replay.trace.metadata.update(
        profile=profile.name,
        topology=topology.name,
        ranks=topology.num_ranks,
        algorithm=name_of_algorithm,
        strategy=overlap.name,
        note="rank 0 stands for all",
    )
    return StepRun(end_ps, profile.compute_ps, floor, runs, used, replay.trace)


class _Replay:
    """One step in virtual time: feeds the reducer and obeys it."""

    def __init__(
        self,
        env: simpy.Environment,
        profile: Profile,
        buckets: list[list[int]],
        strategy: Strategy,
        queue: CollectiveQueue,
    ) -> None:
        self.env = env
        self.profile = profile
        self.queue = queue
        self.reducer = Reducer(buckets, strategy, [gradient.name for gradient in profile.gradients])
        self.members = [[profile.gradients[index] for index in bucket] for bucket in buckets]
        self.carried: dict[int, simpy.Process] = {}
        self.runs: dict[int, BucketRun] = {}
        self.trace = Trace()
        self.end_ps = 0

    def step(self, order: list[int]) -> SimProcess:
        """Compute the step, gradient by gradient."""
        profile = self.profile
        yield from self.compute("forward", profile.forward_ps)
        yield from self.feed(BackwardBegan())
        for index in order:
            gradient = profile.gradients[index]
            yield from self.compute(f"gradient:{gradient.name}", profile.forward_ps + gradient.ready_ps)
            yield from self.feed(GradReady(index))
        yield from self.compute("backward", profile.compute_ps)
        yield from self.feed(BackwardEnded())

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
                case LaunchBucket(bucket):
                    self.carried[bucket] = self.env.process(self.carry(bucket))
                case AwaitBucket(bucket):
                    yield self.carried[bucket]
                case FinishBackward():
                    self.end_ps = int(self.env.now)

    def carry(self, bucket: int) -> SimProcess:
        """Take a bucket through the queue and report that it is reduced."""
        launched_ps = int(self.env.now)
        nbytes = sum(gradient.nbytes for gradient in self.members[bucket])
        span = yield self.queue.submit(nbytes)
        complete_ps = self.profile.forward_ps + max(gradient.ready_ps for gradient in self.members[bucket])
        self.runs[bucket] = BucketRun(nbytes, complete_ps, launched_ps, span.start_ps, span.end_ps)
        name = f"all_reduce bucket {bucket}"
        self.trace.span(0, "communication", name, span.start_ps, span.end_ps, nbytes=nbytes)
        yield from self.feed(BucketReduced(bucket))


def _floor_ps(profile: Profile, buckets: tuple[BucketRun, ...], topology: Topology) -> int:
    """Return what no step can go below: its compute, and its bytes once they are ready."""
    last = buckets[-1]
    return max(
        profile.compute_ps,
        min(bucket.complete_ps for bucket in buckets) + floor_ps("all_reduce", profile.nbytes, topology),
        last.complete_ps + floor_ps("all_reduce", last.nbytes, topology),
    )
