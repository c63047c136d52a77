"""One step in virtual time: computation as a profile says, communication as the reducer commands.

    profile                                        reducer
    forward_seconds have passed                →   BackwardBegan
    a gradient's ready_seconds have passed     →   GradReady
    backward_seconds have passed               →   BackwardEnded, OptimizerStepped
    a collective on the queue is done          →   BucketReduced
    the next forward pass comes to a parameter →   ParameterNeeded

    reducer                                        virtual time
    LaunchBucket                               →   the collective joins the communicator's queue
    AwaitBucket                                →   the step waits for it
    UpdateBucket                               →   nothing: what an optimizer takes is counted at the end
    FinishBackward                             →   nothing is in flight any more

What a step is, and what is assumed: `ddp.simulation.simulated_step`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import simpy

from collectives.timing.queues import CallSpan
from ddp.profiles import Profile
from ddp.reduction.events import (
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
from ddp.reduction.reducer import Phase, Reducer
from ddp.reduction.strategies.plan import ALL_GATHER, REDUCE_SCATTER, Plan
from ddp.reduction.strategies.strategy import Barrier, Strategy
from ddp.reduction.timings import BucketRun
from ddp.simulation.communication import CalledStepQueue, StepQueue
from ddp.simulation.losses import NO_LOSSES, Losses
from sim.trace import Trace

SimProcess = Generator[simpy.Event, Any, None]


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


def contended(
    env: simpy.Environment,
    work_ps: int,
    slower: Fraction,
    under_way: Callable[[], list[simpy.Process]],
) -> SimProcess:
    """Let *work_ps* of computation pass, *slower* times as long while a collective is under way."""
    left_ps = work_ps
    while slower > 1 and left_ps and (running := under_way()):
        since_ps = int(env.now)
        done = env.timeout(-(-left_ps * slower.numerator // slower.denominator))
        yield done | env.any_of(running)
        passed_ps = int(env.now) - since_ps
        left_ps = 0 if done.processed else left_ps - passed_ps * slower.denominator // slower.numerator
    if left_ps:
        yield env.timeout(left_ps)


class Replay:
    """One step in virtual time: feeds the reducer and obeys it.

    Attributes:
        runs: the collectives, in the order of launch.
        time_ps: length of the step, once it is done.
        calls: when the rank was about its collectives: at each hook, and from the beginning of each wait
            to its end, in picoseconds.
    """

    def __init__(
        self,
        env: simpy.Environment,
        profile: Profile,
        plan: Plan,
        strategy: Strategy,
        queue: StepQueue,
        num_ranks: int,
        losses: Losses = NO_LOSSES,
    ) -> None:
        self.env = env
        self.profile = profile
        self.plan = plan
        self.strategy = strategy
        self.queue = queue
        self.num_ranks = num_ranks
        self.losses = losses
        self.lag_ps = 0  # by which this backward pass is behind the profile
        self.reducer = Reducer(plan, strategy, [gradient.name for gradient in profile.gradients])
        self.in_flight: dict[int, simpy.Process] = {}
        self.runs: list[BucketRun] = []
        self.trace = Trace()
        self.backward_ps = 0
        self.time_ps = 0
        self.calls: list[tuple[int, int]] = []
        self.called = queue.queue if isinstance(queue, CalledStepQueue) else None
        self.numbers: dict[int, int] = {}

    def step(self, order: list[int]) -> SimProcess:
        """Compute the step, gradient by gradient, and what of the next one belongs to it."""
        profile = self.profile
        for _ in range(self.strategy.num_passes - 1):
            yield from self.compute("forward", int(self.env.now) + profile.forward_ps)
            yield from self.compute("backward", int(self.env.now) + profile.backward_ps)
        yield from self.compute("forward", int(self.env.now) + profile.forward_ps)
        began_ps = self.backward_ps = int(self.env.now)
        self.lag_ps = 0
        yield from self.feed(BackwardBegan())
        for index in order:
            gradient = profile.gradients[index]
            yield from self.compute(f"gradient:{gradient.name}", began_ps + self.lag_ps + gradient.ready_ps)
            yield from self.copy(f"copy:{gradient.name}", gradient.nbytes)
            yield from self.call()
            yield from self.feed(GradReady(index))
        yield from self.compute("backward", began_ps + self.lag_ps + profile.backward_ps)
        yield from self.end_backward()
        if self.reducer.phase is Phase.HOLDING:
            yield from self.feed(OptimizerStepped())
        shards = self.num_ranks if self.strategy.shards_update else 1
        yield from self.compute("optimizer", int(self.env.now) + self.losses.optimizer_ps // shards)
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
        """Let the time until *until_ps* pass with computation, and longer if communication slows it down."""
        start_ps = int(self.env.now)
        if until_ps > start_ps:
            yield from self.spend(until_ps - start_ps)
            self.trace.span(0, "compute", name, start_ps, int(self.env.now))

    def spend(self, work_ps: int) -> SimProcess:
        """Let *work_ps* of computation pass, which takes longer while a collective is under way."""
        start_ps = int(self.env.now)
        yield from contended(self.env, work_ps, self.losses.contention, self.under_way)
        self.lag_ps += int(self.env.now) - start_ps - work_ps

    def under_way(self) -> list[simpy.Process]:
        """Return the collectives that have been launched and are not done."""
        return [process for process in self.in_flight.values() if process.is_alive]

    def copy(self, name: str, nbytes: int) -> SimProcess:
        """Copy gradients into a bucket or out of it, if that is counted."""
        copy_ps = self.losses.copy_ps(nbytes)
        self.lag_ps += copy_ps
        yield from self.compute(name, int(self.env.now) + copy_ps)

    def call(self) -> SimProcess:
        """Let what is in flight go on where it does so on calls alone; that takes the rank's own time."""
        if self.called is not None and self.under_way():
            start_ps = int(self.env.now)
            yield from self.called.call()
            self.lag_ps += int(self.env.now) - start_ps

    def post(self) -> SimProcess:
        """Wait until what was launched has been posted, where the rank itself does that."""
        if self.called is not None:
            start_ps = int(self.env.now)
            yield self.env.timeout(0)
            yield from self.called.posted()
            self.lag_ps += int(self.env.now) - start_ps

    def end_backward(self) -> SimProcess:
        """Hand back what has arrived, and obey the reducer, which as a rule waits for what has not."""
        if not self.strategy.updates_parameters:
            arrived = [run for run in self.runs if not self.in_flight[run.bucket].is_alive]
            yield from self.copy("copy back", sum(run.nbytes for run in arrived))
        yield from self.feed(BackwardEnded())

    def feed(self, event: Event) -> SimProcess:
        """Tell the reducer and obey its commands."""
        now_ps = int(self.env.now)
        self.calls.append((now_ps, now_ps))
        for command in self.reducer.handle(event):
            match command:
                case LaunchBucket(bucket, collective):
                    yield from self.call()
                    self.in_flight[bucket] = self.env.process(self.carry(bucket, collective))
                    yield from self.post()
                case AwaitBucket(bucket):
                    yield from self.wait(bucket)
                case UpdateBucket() | FinishBackward():
                    pass

    def wait(self, bucket: int) -> SimProcess:
        """Wait until the collective of a bucket that is in flight is done."""
        since_ps = int(self.env.now)
        if self.called is not None and self.in_flight[bucket].is_alive:
            self.called.wait(self.numbers[bucket])
        place = yield self.in_flight[bucket]
        if self.called is not None:
            self.called.wait(None)
        now_ps = int(self.env.now)
        self.calls.append((since_ps, now_ps))
        run = self.runs[place]
        self.runs[place] = replace(run, exposed_ps=run.exposed_ps + now_ps - since_ps)
        if now_ps > since_ps:
            self.note(f"wait for {run.collective}", "wait", run, since_ps, now_ps)
        yield from self.copy(f"copy back:{bucket}", 0 if self.strategy.updates_parameters else run.nbytes)

    def carry(self, bucket: int, collective: str) -> Generator[simpy.Event, Any, int]:
        """Take a bucket through the queue, report that it has arrived, and return the place of its record."""
        members = self.plan.buckets[bucket].parameters
        complete_ps = self.backward_ps + max(self.profile.gradients[p].ready_ps for p in members)
        run = BucketRun(bucket, collective, self.nbytes(bucket, collective), complete_ps, int(self.env.now))
        place = len(self.runs)
        self.runs.append(run)

        if self.losses.launch_ps:
            yield self.env.timeout(self.losses.launch_ps)
        done = self.queue.launch(collective, run.nbytes)
        if isinstance(self.queue, CalledStepQueue):
            self.numbers[bucket] = self.queue.last
        span: CallSpan = yield done
        self.runs[place] = replace(run, start_ps=span.start_ps, end_ps=span.end_ps)
        self.note(collective, "communication", run, span.start_ps, span.end_ps)
        yield from self.feed(BucketReduced(bucket))
        return place

    def note(self, what: str, track: str, run: BucketRun, start_ps: int, end_ps: int) -> None:
        """Record a span of a bucket."""
        facts = {"bucket": run.bucket, "collective": run.collective, "nbytes": run.nbytes}
        self.trace.span(0, track, f"{what} bucket {run.bucket}", start_ps, end_ps, **facts)

    def nbytes(self, bucket: int, collective: str) -> int:
        """Return the bytes that travel: equal whole elements for every rank, where each has its part."""
        gradients = self.profile.gradients
        nbytes = self.plan.nbytes(bucket, [gradient.nbytes for gradient in gradients])
        if collective not in (REDUCE_SCATTER, ALL_GATHER):
            return nbytes
        members = [gradients[parameter] for parameter in self.plan.buckets[bucket].parameters]
        unit = self.num_ranks * next((own.nbytes // own.numel for own in members if own.numel), 1)
        return -(-nbytes // unit) * unit
