"""Priority with partitioning: first what the next forward pass needs first, in small parts.

A backward pass gives the gradients of the last layers first; the next forward pass needs the first
layers first.  So buffers are divided into parts of at most *partition_mb*, and of the parts that are
complete the one goes that is needed soonest.  A forward pass begins with what it needs, while the rest is
still on its way.  At most *credits* parts are in flight: fewer, and an urgent one overtakes sooner; more,
and latencies hide behind each other.

All ranks must launch alike, so the order is not found while training: it is that in which a scheduler
with rank 0's ready times and one line of costs would launch.  Needed soonest is what became ready last.

It promises nothing: parts pay latency, and another order of launches may end later.

Sources: Jayarajan et al., "Priority-based Parameter Propagation for Distributed DNN Training" (P3),
MLSys 2019; Peng et al., "A Generic Communication Scheduler for Distributed DNN Training Acceleration"
(ByteScheduler), SOSP 2019: partition size and credit, which it counts in bytes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from ddp.errors import BucketingError, UnknownStrategyError
from ddp.reduction.bucketing import MIB
from ddp.reduction.strategies.plan import ALL_REDUCE, Bucket, Layout, LinearCost, Plan, PlannedLaunch
from ddp.reduction.strategies.strategy import Barrier, Situation, Strategy

ALIGNMENT = 16
"""Bytes of the largest element; a part begins at a multiple of it."""

MAX_PARTS = 100_000
"""Of one step."""


@dataclass(frozen=True)
class Priority(Strategy):
    """See the module's docstring.

    Attributes:
        partition_mb: largest part in MiB; smaller gradients share one.
        credits: parts in flight at most.
    """

    partition_mb: float = 4.0
    credits: int = 4

    kind = "priority"
    update_after = ALL_REDUCE

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            UnknownStrategyError: a parameter is out of range.
        """
        if not isinstance(self.credits, int) or self.credits < 1:
            raise UnknownStrategyError(
                f"priority: credits must be a whole number from 1, got {self.credits!r}"
            )
        if not isinstance(self.partition_mb, (int, float)) or not self.partition_nbytes >= ALIGNMENT:
            raise UnknownStrategyError(
                f"priority: partition_mb must be at least {ALIGNMENT} bytes in MiB, got {self.partition_mb!r}"
            )

    @property
    def barrier(self) -> Barrier:
        """Before what a rank waits until its buckets have arrived."""
        return Barrier.USE

    @property
    def needs_timing(self) -> bool:
        """Whether the plan needs ready times and costs."""
        return True

    @property
    def partition_nbytes(self) -> int:
        """Largest part in bytes, a multiple of the alignment."""
        return min(int(self.partition_mb * MIB), 2**62) // ALIGNMENT * ALIGNMENT

    def plan(self, layout: Layout) -> Plan:
        """Divide buffers, and order the parts; before times are known, buckets as torch's.

        Raises:
            BucketingError: that are more than `MAX_PARTS`.
        """
        if layout.order is None or layout.timing is None:
            return super().plan(layout)
        limited = Layout(layout.nbytes, layout.keys, (self.partition_nbytes,), layout.order)
        buffers = limited.buckets()
        count = sum(
            -(-sum(layout.nbytes[own] for own in buffer) // self.partition_nbytes) for buffer in buffers
        )
        if count > MAX_PARTS:
            least = -(-sum(layout.nbytes) // (MAX_PARTS * MIB))
            raise BucketingError(
                f"priority: {count} parts of {self.partition_mb:g} MiB; expected at most {MAX_PARTS}: take "
                f"priority:partition_mb={2 * least}, or another strategy"
            )
        buckets = [
            part
            for number, buffer in enumerate(buffers)
            for part in parts(buffer, number, layout.nbytes, self.partition_nbytes)
        ]
        sizes = [part[1] - part[0] for part in (bucket.part or (0, 0) for bucket in buckets)]
        ready = [max(layout.timing.ready_ps[p] for p in bucket.parameters) for bucket in buckets]
        position = {parameter: place for place, parameter in enumerate(layout.order)}
        urgency = [-max(position[p] for p in bucket.parameters) for bucket in buckets]
        order = launch_order(ready, urgency, sizes, layout.timing.cost, self.credits)
        return Plan(
            tuple(map(tuple, buffers)), tuple(buckets), tuple(PlannedLaunch(number) for number in order)
        )

    def choose(self, situation: Situation) -> int:
        """Launch as long as there is credit."""
        return min(len(situation.ready), max(0, self.credits - situation.in_flight))


def parts(buffer: Sequence[int], number: int, nbytes: Sequence[int], size: int) -> list[Bucket]:
    """Divide the buffer *number*, in which the parameters *buffer* lie, into parts of *size* bytes."""
    total = sum(nbytes[parameter] for parameter in buffer)
    count = max(1, -(-total // size))
    members: list[list[int]] = [[] for _ in range(count)]
    offset = 0
    for parameter in buffer:
        end = offset + nbytes[parameter]
        for part in range(min(offset // size, count - 1), min(max(offset, end - 1) // size, count - 1) + 1):
            members[part].append(parameter)
        offset = end
    return [
        Bucket(tuple(own), number, (part * size, min((part + 1) * size, total)))
        for part, own in enumerate(members)
    ]


def launch_order(
    ready: Sequence[int], urgency: Sequence[int], sizes: Sequence[int], cost: LinearCost, credits: int
) -> list[int]:
    """Return the order in which a scheduler would launch: the most urgent of those that are ready.

    One collective runs at a time, and at most *credits* are launched and not done.  *ready* is in
    picoseconds; the smallest *urgency* goes first.
    """
    coming = sorted(range(len(ready)), key=lambda part: ready[part])
    waiting: list[tuple[int, int]] = []
    ends: list[int] = []
    order: list[int] = []
    now = taken = 0
    while len(order) < len(ready):
        if len(ends) >= credits:
            now = max(now, ends[-credits])
        if not waiting and taken < len(coming):
            now = max(now, ready[coming[taken]])
        while taken < len(coming) and ready[coming[taken]] <= now:
            heapq.heappush(waiting, (urgency[coming[taken]], coming[taken]))
            taken += 1
        _, part = heapq.heappop(waiting)
        order.append(part)
        ends.append(max([now, *ends[-1:]]) + cost.ps(sizes[part]))
    return order
