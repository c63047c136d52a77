"""One step of replicated parameters: computation as a profile says, communication as the reducer commands.

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

What a step is, and what is assumed: `ddp.step.simulated_step`.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

import simpy

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
from ddp.step.timeline import SimProcess, Timeline


class Replicated:
    """Feeds the reducer with what happens on a timeline, and obeys it there.

    Before each forward pass buffers are brought to all ranks, in *broadcasts* of so many bytes.
    """

    def __init__(
        self, timeline: Timeline, profile: Profile, plan: Plan, strategy: Strategy, broadcasts: list[int]
    ) -> None:
        self.timeline = timeline
        self.broadcasts = broadcasts
        self.profile = profile
        self.plan = plan
        self.strategy = strategy
        self.reducer = Reducer(plan, strategy, [gradient.name for gradient in profile.gradients])
        self.backward_ps = 0
        self.places: dict[int, int] = {}  # of each bucket's last collective among the runs

    def step(self) -> Generator[simpy.Event, Any, int]:
        """Compute the step, and what of the next one belongs to it; return its length."""
        timeline, profile = self.timeline, self.profile
        for number in range(self.strategy.num_passes):
            if number:
                yield from timeline.compute("backward", profile.backward_ps)
            if number or self.strategy.barrier is not Barrier.USE:
                yield from timeline.broadcast(self.broadcasts)
            yield from timeline.compute("forward", profile.forward_ps)
        yield from self.backward()
        if self.reducer.phase is Phase.HOLDING:
            yield from self.feed(OptimizerStepped())
        yield from timeline.update(self.strategy)
        if self.strategy.barrier is not Barrier.USE:
            return timeline.now_ps
        yield from self.next_forward()
        return timeline.now_ps - profile.forward_ps

    def backward(self) -> SimProcess:
        """Compute the backward pass that reduces, and hand back what has arrived."""
        timeline, profile = self.timeline, self.profile
        self.backward_ps = timeline.now_ps
        yield from self.feed(BackwardBegan())
        order, works = profile.backward_pieces()
        for index, work_ps in zip(order, works, strict=False):
            gradient = profile.gradients[index]
            yield from timeline.compute(f"gradient:{gradient.name}", work_ps)
            yield from timeline.copy(f"copy:{gradient.name}", gradient.nbytes)
            yield from timeline.poll()
            yield from self.feed(GradReady(index))
        yield from timeline.compute("backward", works[-1])
        if not self.strategy.updates_parameters:
            yield from timeline.copy("copy back", sum(run.nbytes for run in timeline.arrived()))
        yield from self.feed(BackwardEnded())

    def next_forward(self) -> SimProcess:
        """Compute a forward pass that waits for each parameter when it needs it."""
        yield from self.timeline.broadcast(self.broadcasts)
        order, works = self.profile.forward_pieces()
        for index, work_ps in zip(order, works, strict=False):
            yield from self.timeline.compute("forward", work_ps)
            yield from self.feed(ParameterNeeded(index))
        yield from self.timeline.compute("forward", works[-1])

    def feed(self, event: Event) -> SimProcess:
        """Tell the reducer and obey its commands."""
        self.timeline.calls.append((self.timeline.now_ps, self.timeline.now_ps))
        for command in self.reducer.handle(event):
            match command:
                case LaunchBucket(bucket, collective):
                    yield from self.timeline.poll()
                    self.launch(bucket, collective)
                    yield from self.timeline.post()
                case AwaitBucket(bucket):
                    place = self.places[bucket]
                    yield from self.timeline.wait(place)
                    if not self.strategy.updates_parameters:
                        nbytes = self.timeline.runs[place].nbytes
                        yield from self.timeline.copy(f"copy back:{bucket}", nbytes)
                case UpdateBucket() | FinishBackward():
                    pass

    def launch(self, bucket: int, collective: str) -> None:
        """Launch a collective of a bucket, of which the reducer is told when it is done."""
        members = self.plan.buckets[bucket].parameters
        self.places[bucket] = self.timeline.launch(
            bucket,
            collective,
            self.nbytes(bucket, collective),
            self.backward_ps + max(self.profile.gradients[index].ready_ps for index in members),
            then=partial(self.feed, BucketReduced(bucket)),
        )

    def nbytes(self, bucket: int, collective: str) -> int:
        """Return the bytes that travel: equal whole elements for every rank, where each has its part."""
        gradients = self.profile.gradients
        nbytes = self.plan.nbytes(bucket, [gradient.nbytes for gradient in gradients])
        if collective not in (REDUCE_SCATTER, ALL_GATHER):
            return nbytes
        members = [gradients[parameter] for parameter in self.plan.buckets[bucket].parameters]
        return self.timeline.whole(nbytes, next((own.nbytes // own.numel for own in members if own.numel), 1))
