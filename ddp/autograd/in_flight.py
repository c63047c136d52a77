"""Buckets in flight: launched on a communicator and not completed, and the records of those that are.

Nothing moves by itself over some transports, so gradients that come poll what is in flight.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from collectives.communicators.communicator import Communicator
from collectives.execution.work import Interrupting, Work
from ddp.autograd.gradient_buckets import GradientBuckets
from ddp.autograd.observation.iteration_times import IterationTimes
from ddp.autograd.observation.timeline import RankTimeline
from ddp.autograd.unused import NothingToDo, Readiness
from ddp.buckets.comm_hooks import CommHook
from ddp.reduction.timings import BucketRun


class Undisturbed:
    """A context, also within itself, in which completions are kept until its end; then somebody polls."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *exception: object) -> None:
        self.depth -= 1


class BucketsInFlight:
    """Launches the collectives of buckets, and says which have completed.

    Args:
        buckets: what travels.
        communicator: carries it.
        timeline: is told when each was on its way.
        times: is told of the first launch and the last completion.
        readiness: knows unused parameters; buckets of nothing else are not reduced.  None: all are.

    Attributes:
        comm_hook: does what is done with buckets, instead of averaging them.
        divisor: by which sums are divided: the number of ranks that compute gradients.
        reduced: the buckets of this pass that were reduced, as something in them was used.
        landed: the collectives of this pass that have completed, in that order.
        on_completion: is called when one completes while the rank computes, where that can be noticed.
    """

    def __init__(
        self,
        buckets: GradientBuckets,
        communicator: Communicator,
        timeline: RankTimeline,
        times: IterationTimes,
        readiness: Readiness | None = None,
    ) -> None:
        self.comm_hook: CommHook | None = None
        self.divisor = communicator.world_size
        self.landed: list[BucketRun] = []
        self.reduced: set[int] = set()
        self.on_completion: Callable[[], None] | None = None
        self._buckets = buckets
        self._communicator = communicator
        self._timeline = timeline
        self._times = times
        self._readiness = readiness
        self._in_flight: dict[int, tuple[BucketRun, Work]] = {}
        self._began_ps = self._queue_free_ps = 0
        self.undisturbed = Undisturbed()

    @property
    def local_divisor(self) -> int:
        """By which each rank divides its gradients before they are summed."""
        return self.divisor if self.comm_hook is None else 1

    @property
    def first(self) -> int | None:
        """The bucket that was launched before all others in flight, if there is any."""
        return next(iter(self._in_flight), None)

    def begin(self, began_ps: int) -> None:
        """Begin a pass of the step that began at *began_ps*."""
        self.landed.clear()
        self.reduced.clear()
        self._began_ps = began_ps

    def launch(self, bucket: int, collective: str, ready_ps: Mapping[int, int]) -> None:
        """Start a collective on a bucket, whose gradients were ready at *ready_ps*."""
        self._times.first("first_launch")
        complete_ps = max(ready_ps[index] for index in self._buckets.plan.buckets[bucket].parameters)
        launched_ps = self._timeline.now_ps()
        run = BucketRun(
            bucket,
            collective,
            self._buckets.nbytes(bucket),
            complete_ps - self._began_ps,
            launched_ps - self._began_ps,
        )

        work = self._start(bucket, collective)
        if self.on_completion is not None and isinstance(work, Interrupting):
            work.interrupt(self._completed_meanwhile)
        self._in_flight[bucket] = run, work

    def poll(self) -> Iterator[BucketRun]:
        """Advance what is in flight; yield what has completed, in the order of launch."""
        if not self._in_flight:
            return
        self._communicator.poll()
        for bucket, (_, work) in list(self._in_flight.items()):
            if not work.is_completed():
                return
            yield self._land(bucket, 0)

    def wait(self, bucket: int) -> BucketRun:
        """Return what became of a bucket in flight when its collective has completed."""
        run, work = self._in_flight[bucket]
        since_ps = self._timeline.now_ps()
        work.wait()
        now_ps = self._timeline.now_ps()
        if now_ps > since_ps:
            self._note(f"wait for {run.collective}", "wait", run, since_ps, now_ps)
        return self._land(bucket, now_ps - since_ps)

    def settle(self) -> None:
        """Wait for all that is in flight, and forget it, and its errors: one has been raised."""
        for _, work in self._in_flight.values():
            with contextlib.suppress(Exception):
                work.wait()
        self._in_flight.clear()

    def _completed_meanwhile(self) -> None:
        if not self.undisturbed.depth and self.on_completion is not None:
            self.on_completion()

    def _start(self, bucket: int, collective: str) -> Work:
        """Start the collective, or the communication hook, or nothing where nothing is used."""
        members = self._buckets.plan.buckets[bucket].parameters
        if self._readiness is not None and self._readiness.surely_unused.issuperset(members):
            return NothingToDo()
        self.reduced.add(bucket)
        if self.comm_hook is not None:
            is_last = bucket == len(self._buckets.memory) - 1
            return self.comm_hook.start(bucket, is_last, self._buckets.memory[bucket])
        return self._buckets.start(bucket, collective, self._communicator)

    def _land(self, bucket: int, exposed_ps: int) -> BucketRun:
        """Take a bucket out of the air, and complete its record."""
        run, work = self._in_flight[bucket]
        work.wait()
        del self._in_flight[bucket]
        end_ps = work.completed_ps or self._timeline.now_ps()
        start_ps = min(max(run.launched_ps + self._began_ps, self._queue_free_ps), end_ps)
        self._queue_free_ps = max(self._queue_free_ps, end_ps)

        self._note(run.collective, "communication", run, start_ps, end_ps)
        self._times.last("last_reduced")
        landed = BucketRun(
            run.bucket,
            run.collective,
            run.nbytes,
            run.complete_ps,
            run.launched_ps,
            start_ps - self._began_ps,
            end_ps - self._began_ps,
            exposed_ps,
        )
        self.landed.append(landed)
        return landed

    def _note(self, what: str, track: str, run: BucketRun, start_ps: int, end_ps: int) -> None:
        self._timeline.span(
            track,
            f"{what} bucket {run.bucket}",
            start_ps,
            end_ps,
            bucket=run.bucket,
            collective=run.collective,
            nbytes=run.nbytes,
        )
