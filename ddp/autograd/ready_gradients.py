"""Ready gradients: taken into their buckets as they come, and told to the reducer.

Nothing is launched before a bucket's last gradient, so one event for the bucket says as much as one for each
gradient, and costs less: Python between two gradients is slow, as the gradients have driven it out of the
processor's cache.  (With an event for each, the step of the benchmark ``small`` takes 1.20 times as much of
the processor as torch's, with one for each bucket 1.11 times.)  Nor is what is in flight polled, where it has
to be, more often than once for the bytes of a group of hooks (`ddp.autograd.hook_groups`).  Each gradient is
an event of its own where somebody asks for its time, where gradients share buckets, and where a bucket is
left half full.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch.nn import Parameter

from collectives.communicators.communicator import Communicator
from ddp.autograd.gradient_buckets import GradientBuckets
from ddp.autograd.hook_groups import GROUP_BYTES, GradientHooks
from ddp.autograd.in_flight import BucketsInFlight
from ddp.autograd.observation.checks import GradientChecks
from ddp.autograd.observation.iteration_times import IterationTimes
from ddp.autograd.observation.timeline import RankTimeline
from ddp.autograd.reduction import Reduction
from ddp.autograd.unused import Readiness
from ddp.buckets.deferred_gradient import DeferredGradients
from ddp.reduction.events import BucketFilled, Event, GradReady
from ddp.reduction.reducer import Phase


class ReadyGradients:
    """Takes gradients when autograd has accumulated them.

    Args:
        buckets: into which they are taken.
        in_flight: says by what they are divided.
        hooks: say which others have come with one.
        communicator: carries buckets; it may have to be polled.
        timeline: says when gradients come.
        times: is told of the last one.
        readiness: when gradients are ready, if not all parameters are used once in each pass.
        checks: are shown each gradient before it is taken.
        deferred: take the place of each gradient when it is taken.
        num_passes: backward passes until gradients are reduced.

    Attributes:
        ready_ps: when each gradient of the latest pass was ready, in the order in which they came; where a
            bucket is one event, when its last one was.
    """

    def __init__(
        self,
        buckets: GradientBuckets,
        in_flight: BucketsInFlight,
        hooks: GradientHooks,
        communicator: Communicator,
        timeline: RankTimeline,
        times: IterationTimes,
        readiness: Readiness | None,
        checks: GradientChecks | None,
        deferred: DeferredGradients | None,
        num_passes: int,
    ) -> None:
        self.ready_ps: dict[int, int] = {}
        self._buckets = buckets
        self._in_flight = in_flight
        self._hooks = hooks
        self._moves_by_itself = communicator.moves_by_itself
        self._timeline = timeline
        self._times = times
        self._readiness = readiness
        self._checks = checks
        self._deferred = deferred
        self._num_passes = num_passes
        self._num_local_passes_left = num_passes - 1
        self._has_reached_any = False
        self._bytes_since = 0  # of gradients taken one by one since what is in flight was advanced

    def report_to(self, reduction: Reduction) -> None:
        """Tell *reduction*, which is not kept alive if it is a weak proxy."""
        self._reduction = reduction

    def follow(self, each: bool) -> None:
        """Take note of new buckets; *each*: somebody asks for the time of each gradient."""
        plan = self._buckets.plan
        whole = [bucket.buffer for bucket in plan.buckets] == list(range(len(plan.buffers)))
        self._tells_each = each or self._timeline.matters or not whole
        self._bucket_of = {index: n for n, own in enumerate(plan.buckets) for index in own.parameters}
        self._num_missing: list[int] = []

    def group_hooks(self) -> None:
        """Watch the last gradient of each group only, if nobody has to hear of each when it comes."""
        nobody_asks = self._readiness is None and self._checks is None and not self._tells_each
        stay_in_place = self._deferred is None and not any(own.is_view for own in self._buckets.memory)
        if nobody_asks and stay_in_place:
            waits = [memory.waits for memory in self._buckets.memory]
            self._hooks.group(self._buckets.members, list(self.ready_ps), waits)

    def unused(self) -> list[Parameter]:
        """Return the parameters known to be unused on this rank."""
        if self._readiness is None:
            return []
        return [self._buckets.parameters[index] for index in sorted(self._readiness.surely_unused)]

    def begin(self) -> None:
        """Begin a pass."""
        self.ready_ps.clear()
        self._num_missing = [len(bucket.parameters) for bucket in self._buckets.plan.buckets]

    def gradient_ready(self, index: int) -> None:
        """Take what is ready, and advance what is in flight, unless the pass only adds up."""
        self._has_reached_any = True
        if self._num_local_passes_left:
            return
        if self._readiness is None:
            self._take(self._hooks.come_with(index))
        else:
            self._take(tuple(self._readiness.accumulated(index)))

    def gradient_kept(self, index: int) -> None:
        """Take note of a gradient that is not reduced."""
        if self._readiness is not None:
            self._readiness.kept(index)

    def gradient_early(self, index: int) -> None:
        """Take a gradient after all; groups are of no use, as they look at what comes later."""
        if self._readiness is None:
            self._hooks.give_up_groups()
            self.gradient_ready(index)

    def take_nothing(self) -> None:
        """Take zeros for every gradient."""
        for index in range(len(self._buckets.parameters)):
            self._buckets.take_nothing(index)
            self._note(index)

    def end(self) -> None:
        """Take what is ready only because the pass is over, and tell of buckets that are half full."""
        unnoticed = self._hooks.unnoticed()
        if unnoticed and not self._num_local_passes_left:
            self._take(unnoticed)
        if self._has_reached_any or unnoticed:
            self._num_local_passes_left = (self._num_local_passes_left or self._num_passes) - 1
        self._has_reached_any = False
        if self._reduction.phase is not Phase.FILLING:
            return

        if self._readiness is not None:
            self._take(tuple(self._readiness.pass_ended()))
        for twice in self._hooks.end():
            self._note(twice)
        for bucket in range(len(self._num_missing)):
            self._tell_half_full(bucket)

    def abandon(self) -> None:
        """Start anew: what has come in the pass counts for nothing."""
        self._has_reached_any = False
        if self._readiness is not None:
            self._readiness.reset()

    def _take(self, ready: Sequence[int]) -> None:
        """Copy gradients into their buckets, and advance what is in flight."""
        if self._reduction.phase is not Phase.FILLING:
            self._reduction.begin()

        divisor = self._in_flight.local_divisor
        if self._are_a_bucket(ready):
            self._buckets.take_all(ready, divisor)
            self._note_filled(self._bucket_of[ready[0]])
            self._reduction.advance()
            return

        has_told = False
        for index in ready:
            if self._checks is not None:
                self._checks.taken(index)
            self._buckets.take(index, divisor)
            self._bytes_since += self._buckets.parameters[index].nbytes
            if self._note(index):
                has_told = True
            if self._deferred is not None:
                self._deferred.put(index)

        polls = not self._moves_by_itself and self._bytes_since >= GROUP_BYTES
        if has_told or polls:
            self._bytes_since = 0
            self._reduction.advance()

    def _are_a_bucket(self, ready: Sequence[int]) -> bool:
        """Return whether they are all gradients of one bucket, and nobody asks for each."""
        if self._tells_each or self._checks is not None or self._deferred is not None or len(ready) < 2:
            return False
        members = self._buckets.plan.buckets[self._bucket_of[ready[0]]].parameters
        return len(ready) == len(members) and set(ready) == set(members) and ready[0] not in self.ready_ps

    def _note_filled(self, bucket: int) -> None:
        """Take note that all gradients of *bucket* have come."""
        self._num_missing[bucket] = 0
        members = self._buckets.plan.buckets[bucket].parameters
        self.ready_ps.update(dict.fromkeys(members, self._timeline.now_ps()))
        self._tell(BucketFilled(bucket))

    def _note(self, index: int) -> bool:
        """Take note of a gradient; return whether the reducer was told of it."""
        timeline = self._timeline
        if self._tells_each:
            self.ready_ps[index] = timeline.latest_ps if timeline.matters else timeline.now_ps()
            self._tell(GradReady(index))
            return True

        bucket = self._bucket_of[index]
        if index in self.ready_ps:  # it came twice, which the reducer refuses
            self._tell_half_full(bucket)
            self._tell(GradReady(index))
            return True

        self.ready_ps[index] = 0
        self._num_missing[bucket] -= 1
        if self._num_missing[bucket]:
            return False
        self._note_filled(bucket)
        return True

    def _tell(self, event: Event) -> None:
        self._times.last("last_gradient")
        self._reduction.tell(event)

    def _tell_half_full(self, bucket: int) -> None:
        """Tell of the gradients in a bucket from which some are missing, unless they have been told."""
        if self._tells_each or not self._num_missing[bucket]:
            return
        for index in self._buckets.plan.buckets[bucket].parameters:
            if index in self.ready_ps:
                self._tell(GradReady(index))
