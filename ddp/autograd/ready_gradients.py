"""Which gradients of a pass have come, and what the reducer is told of it.

Nothing is launched before a bucket's last gradient, so one event for the bucket says as much as one for each
gradient, and costs less: Python between two gradients is slow, as the gradients have driven it out of the
processor's cache.  Each gradient is an event of its own where somebody asks for its time, where gradients
share buckets, and where a bucket is left half full.
"""

from __future__ import annotations

from collections.abc import Sequence

from ddp.autograd.timeline import Timeline
from ddp.reduction.events import BucketFilled, Event, GradReady
from ddp.reduction.strategies.plan import Plan

NOTHING: tuple[Event, ...] = ()


class Filling:
    """Takes note of gradients.

    Args:
        timeline: says when they come.

    Attributes:
        order: in which gradients became ready in the latest pass.
        ready_ps: when each did; where a bucket is one event, when its last one did.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.order: list[int] = []
        self.ready_ps: dict[int, int] = {}
        self._timeline = timeline
        self._each = True
        self._members: list[tuple[int, ...]] = []
        self._bucket_of: dict[int, int] = {}
        self._missing: list[set[int]] = []

    @property
    def tells_each(self) -> bool:
        """Whether each gradient is an event of its own."""
        return self._each

    def follow(self, plan: Plan, each: bool) -> None:
        """Let the buckets be those of *plan*; *each*: somebody asks for the time of each gradient."""
        self._members = [bucket.parameters for bucket in plan.buckets]
        whole = [bucket.buffer for bucket in plan.buckets] == list(range(len(plan.buffers)))
        self._each = each or self._timeline.matters or not whole
        self._bucket_of = {index: number for number, own in enumerate(self._members) for index in own}

    def begin(self) -> None:
        """Begin a pass."""
        self.order.clear()
        self._missing = [] if self._each else [set(members) for members in self._members]

    def note(self, index: int) -> Sequence[Event]:
        """Take note of a gradient; return what the reducer is told now."""
        self.order.append(index)
        if self._each:
            timeline = self._timeline
            self.ready_ps[index] = timeline.latest_ps if timeline.matters else timeline.now_ps()
            return (GradReady(index),)
        bucket = self._bucket_of[index]
        missing = self._missing[bucket]
        if index not in missing:  # it came twice, which the reducer refuses
            return (*self._come(bucket), GradReady(index))
        missing.remove(index)
        if missing:
            return NOTHING
        self.ready_ps.update(dict.fromkeys(self._members[bucket], self._timeline.now_ps()))
        return (BucketFilled(bucket),)

    def end(self) -> Sequence[Event]:
        """Return what the reducer has not been told: gradients in buckets that are half full."""
        return [event for bucket in range(len(self._missing)) for event in self._come(bucket)]

    def _come(self, bucket: int) -> list[Event]:
        """Return the gradients of a bucket that is half full."""
        missing = self._missing[bucket]
        if not missing:
            return []
        return [GradReady(index) for index in self._members[bucket] if index not in missing]
