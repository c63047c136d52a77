"""A plan: which gradients travel together, in which order, by which collectives.

Gradients lie in *buffers* of one dtype and device each.  What travels is a *bucket*: a whole buffer or
a part of one.  A bucket's *journey* is the collectives that carry it, one after another; the plan lists
the launches of all buckets in one order.

A plan is a pure function of a `Layout`.  What of it differs between ranks (ready times, costs) is that
of rank 0 everywhere, so all ranks plan alike and launch in the same order, whatever order their own
gradients become ready in.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ddp.errors import ReducerError
from ddp.reduction.bucketing import assign_buckets

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER = "all_reduce", "reduce_scatter", "all_gather"
REDUCE, BROADCAST = "reduce", "broadcast"

SMALL, LARGE = 4 * 2**10, 4 * 2**20
"""Bytes of the two all-reduces through which a line of costs is drawn."""


@dataclass(frozen=True, slots=True)
class LinearCost:
    """What an all-reduce costs: the line through two sizes, in integers, so that all ranks agree.

    Attributes:
        latency_ps: α, whatever the size.
        fs_per_byte: β, femtoseconds for each byte.
    """

    latency_ps: int
    fs_per_byte: int

    def ps(self, nbytes: int) -> int:
        """Return the estimate for *nbytes* bytes, in picoseconds."""
        return self.latency_ps + nbytes * self.fs_per_byte // 1000

    @classmethod
    def through(cls, small: tuple[int, int], large: tuple[int, int]) -> LinearCost:
        """Return the line through two points (bytes, picoseconds); neither α nor β is negative."""
        (low, short), (high, long) = small, large
        fs_per_byte = max(0, (long - short) * 1000 // (high - low))
        return cls(max(0, short - low * fs_per_byte // 1000), fs_per_byte)


def calibration_sizes(world_size: int) -> tuple[int, int]:
    """Return the sizes in bytes through which real and simulated runs draw `LinearCost.through`.

    About 4 KiB and 4 MiB, in whole float64 elements for every rank.
    """
    unit = 8 * world_size
    small = -(-SMALL // unit) * unit
    large = -(-max(LARGE, 2 * unit + SMALL) // unit) * unit
    return small, large


@dataclass(frozen=True, slots=True)
class PassTiming:
    """What was seen of earlier passes on rank 0.

    Attributes:
        ready_ps: when each parameter's gradient is ready, since the backward pass began.
        cost: of an all-reduce.
    """

    ready_ps: tuple[int, ...]
    cost: LinearCost


@dataclass(frozen=True, slots=True)
class Layout:
    """What a strategy plans from.

    Attributes:
        nbytes: size of each parameter's gradient.
        keys: what the members of a buffer have in common, for example (dtype, device).
        limits: see `ddp.reduction.bucketing.assign_buckets`.
        order: the parameters in the order in which their gradients become ready; None: not known yet.
        timing: None: not known yet, or not asked for.
    """

    nbytes: Sequence[int]
    keys: Sequence[Hashable]
    limits: Sequence[int]
    order: Sequence[int] | None = None
    timing: PassTiming | None = None

    def buckets(self) -> list[list[int]]:
        """Return the buckets that torch's DDP would have."""
        return assign_buckets(self.nbytes, self.keys, self.limits, self.order)


@dataclass(frozen=True, slots=True)
class Bucket:
    """What travels together.

    Attributes:
        parameters: whose gradients, or parts of gradients, are in it.
        buffer: where they lie.
        part: of the buffer, from one byte to another; None is the whole.
    """

    parameters: tuple[int, ...]
    buffer: int
    part: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class PlannedLaunch:
    """One stage of a bucket's journey."""

    bucket: int
    collective: str = ALL_REDUCE


@dataclass(frozen=True, slots=True)
class Plan:
    """See the module's docstring.

    Attributes:
        buffers: for each the parameters in it, in the order in which they lie there.
        buckets: numbered from 0.
        launches: in the order of launch.
    """

    buffers: tuple[tuple[int, ...], ...]
    buckets: tuple[Bucket, ...]
    launches: tuple[PlannedLaunch, ...]

    @classmethod
    def of_whole_buffers(
        cls, buffers: Sequence[Sequence[int]], launches: Sequence[PlannedLaunch] | None = None
    ) -> Plan:
        """Return the plan in which each buffer is a bucket; by default each is all-reduced, in order."""
        own = tuple(tuple(buffer) for buffer in buffers)
        buckets = tuple(Bucket(parameters, number) for number, parameters in enumerate(own))
        return cls(own, buckets, tuple(launches or (PlannedLaunch(number) for number in range(len(own)))))

    def nbytes(self, bucket: int, sizes: Sequence[int]) -> int:
        """Return the bytes of a bucket, where *sizes* are those of the parameters."""
        own = self.buckets[bucket]
        if own.part is not None:
            return own.part[1] - own.part[0]
        return sum(sizes[parameter] for parameter in own.parameters)

    def check(self) -> None:
        """Refuse a plan that does not hold together.

        Raises:
            ReducerError: the message says what does not.
        """
        if not all(bucket.parameters for bucket in self.buckets):
            raise ReducerError("every bucket must hold at least one parameter")
        where = [(parameter, number) for number, buffer in enumerate(self.buffers) for parameter in buffer]
        if len(dict(where)) < len(where):
            raise ReducerError("a parameter must be in one buffer only, once")
        travels = {(parameter, own.buffer) for own in self.buckets for parameter in own.parameters}
        if travels != set(where):
            raise ReducerError("every parameter must be in a bucket of its buffer")
        if {launch.bucket for launch in self.launches} != set(range(len(self.buckets))):
            raise ReducerError("every bucket must be launched, and only those that there are")
