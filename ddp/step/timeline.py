"""Timeline of a simulated step: computation, copies, collectives and waits of a rank that stands for all.

    compute   computation passes, more slowly while a collective is under way
    broadcast buffers travel from one rank to all, for which the computation waits
    copy      bytes are copied within the device, for which the computation waits
    launch    a collective joins the queue, once its input has been copied and its kernel launched
    wait      nothing passes until a collective is done
    poll      collectives that go on when their rank calls go on; so they do when one is posted, and in waits
    update    the optimizer

Steps of every kind are put together from these (`ddp.step.replicated`, `ddp.step.sharded`), so what is
counted in one kind is counted in all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from typing import Any

import simpy

from collectives.timing.queues import CallSpan
from collectives.timing.ranks.attention import Attention
from ddp.reduction.strategies.plan import BROADCAST
from ddp.reduction.strategies.strategy import Strategy
from ddp.reduction.timings import BucketRun
from ddp.step.communication import PolledStepQueue, StepQueue
from ddp.step.inefficiencies import Inefficiencies
from sim.trace import Trace

SimProcess = Generator[simpy.Event, Any, None]

BUFFERS = -1
"""What a collective of buffers has as the number of its bucket."""


class Timeline:
    """What happens in one step, in virtual time.

    Args:
        env: the clock, in picoseconds.
        queue: of the step's collectives.
        num_ranks: world size.
        lost: inefficiencies that are counted.
        noun: what travels, for the trace: a bucket or a unit.

    Attributes:
        runs: the collectives, in the order of launch.
        trace: compute, communication and waits.
        calls: when the rank was about its collectives: at each hook, and from the beginning of each wait to
            its end, in picoseconds.
    """

    def __init__(
        self, env: simpy.Environment, queue: StepQueue, num_ranks: int, lost: Inefficiencies, noun: str
    ) -> None:
        self.env = env
        self.num_ranks = num_ranks
        self.runs: list[BucketRun] = []
        self.trace = Trace()
        self.calls: list[tuple[int, int]] = []
        self._queue = queue
        self._polled = queue.queue if isinstance(queue, PolledStepQueue) else None
        self._lost = lost
        self.noun = noun
        self._journeys: list[simpy.Process] = []
        self._queued: list[simpy.Event] = []

    @property
    def now_ps(self) -> int:
        """Picoseconds since the step began."""
        return int(self.env.now)

    def compute(self, name: str, work_ps: int) -> SimProcess:
        """Let *work_ps* of computation pass, and longer beside a collective, if that is counted."""
        start_ps, left_ps, slower = self.now_ps, work_ps, self._lost.contention
        while slower > 1 and left_ps and (running := self._under_way()):
            since_ps = self.now_ps
            done = self.env.timeout(-(-left_ps * slower.numerator // slower.denominator))
            yield done | self.env.any_of(running)
            passed_ps = self.now_ps - since_ps
            left_ps = 0 if done.processed else left_ps - passed_ps * slower.denominator // slower.numerator
        if left_ps:
            yield self.env.timeout(left_ps)
        if work_ps:
            self.trace.span(0, "compute", name, start_ps, self.now_ps)

    def copy(self, name: str, nbytes: int) -> SimProcess:
        """Copy gradients into a bucket or out of it, or parameters out of a buffer, if that is counted."""
        yield from self.compute(name, self._lost.copy_ps(nbytes))

    def broadcast(self, messages: Iterable[int]) -> SimProcess:
        """Bring the buffers of one rank to all, in messages of so many bytes, and wait for them."""
        places = []
        for nbytes in messages:
            yield from self.poll()
            places.append(self.launch(BUFFERS, BROADCAST, nbytes, self.now_ps))
            yield from self.post()
        for place in places:
            yield from self.wait(place)

    def update(self, strategy: Strategy) -> SimProcess:
        """Update parameters, if that is counted: all of them, or this rank's part."""
        shards = self.num_ranks if strategy.shards_update else 1
        yield from self.compute("optimizer", self._lost.optimizer_ps // shards)

    def launch(
        self,
        bucket: int,
        collective: str,
        nbytes: int,
        complete_ps: int,
        *,
        copied: int = 0,
        then: Callable[[], SimProcess] | None = None,
    ) -> int:
        """Let every rank start a collective now, after those before it; return its place among the runs.

        Args:
            bucket: what it carries.
            collective: its kind.
            nbytes: of its buffer.
            complete_ps: when what it carries was ready.
            copied: bytes that are first copied into its input, beside the computation.
            then: is carried out when it is done, before anyone who waits for it goes on.
        """
        place = len(self.runs)
        self.runs.append(BucketRun(bucket, collective, nbytes, complete_ps, self.now_ps))
        self._queued.append(self.env.event())
        self._journeys.append(self.env.process(self._journey(place, copied, then)))
        return place

    def _journey(self, place: int, copied: int, then: Callable[[], SimProcess] | None) -> SimProcess:
        run = self.runs[place]
        if delay_ps := self._lost.copy_ps(copied) + self._lost.launch_ps:
            yield self.env.timeout(delay_ps)
        if place and not self._queued[place - 1].triggered:
            yield self._queued[place - 1]
        done = self._queue.launch(run.collective, run.nbytes)
        self._queued[place].succeed()
        span: CallSpan = yield done
        self.runs[place] = replace(self.runs[place], start_ps=span.start_ps, end_ps=span.end_ps)
        self._note(run.collective, "communication", run, span.start_ps, span.end_ps)
        if then is not None:
            yield from then()

    def wait(self, place: int) -> SimProcess:
        """Wait until the collective at *place* is done; meanwhile the rank is about it."""
        since_ps, journey = self.now_ps, self._journeys[place]
        if self._polled is not None and journey.is_alive:
            self._polled.wait(place)
        yield journey
        if self._polled is not None:
            self._polled.wait(None)
        self.calls.append((since_ps, self.now_ps))
        run = self.runs[place]
        self.runs[place] = replace(run, exposed_ps=run.exposed_ps + self.now_ps - since_ps)
        if self.now_ps > since_ps:
            self._note(f"wait for {run.collective}", "wait", run, since_ps, self.now_ps)

    def poll(self) -> SimProcess:
        """Let what is in flight go on where it does so on calls alone; that takes the rank's own time."""
        if self._polled is not None and self._under_way():
            yield from self._polled.call()

    def post(self) -> SimProcess:
        """Wait until what was launched has been posted, where the rank itself does that."""
        if self._polled is not None:
            yield self.env.timeout(0)
            yield from self._polled.posted()

    def arrived(self) -> list[BucketRun]:
        """Return the collectives of buckets that are done."""
        beside = zip(self.runs, self._journeys, strict=True)
        return [run for run, journey in beside if run.bucket != BUFFERS and not journey.is_alive]

    def attention(self) -> Attention:
        """Return when the rank called; once its last wait has begun nothing more is computed."""
        waits = [call for call in self.calls if call[0] < call[1]]
        ends_ps = max((until_ps for _, until_ps in self.calls), default=0)
        from_ps = waits[-1][0] if waits and waits[-1][1] == ends_ps else ends_ps
        return Attention.of(sorted(self.calls), from_ps)

    def whole(self, nbytes: int, itemsize: int) -> int:
        """Return *nbytes* made up to as many whole elements for every rank."""
        unit = itemsize * self.num_ranks
        return -(-nbytes // unit) * unit

    def _under_way(self) -> list[simpy.Process]:
        return [journey for journey in self._journeys if journey.is_alive]

    def _note(self, what: str, track: str, run: BucketRun, start_ps: int, end_ps: int) -> None:
        facts = {"bucket": run.bucket, "collective": run.collective, "nbytes": run.nbytes}
        carried = "of buffers" if run.bucket == BUFFERS else f"{self.noun} {run.bucket}"
        self.trace.span(0, track, f"{what} {carried}", start_ps, end_ps, **facts)
