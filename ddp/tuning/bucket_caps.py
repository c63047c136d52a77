"""Bucket caps: those that give different buckets at all, and those that give the buckets one wants.

Of all caps only few divide given gradients differently: buckets change where a cap passes the size of
a bucket that it has closed.  So there is a finite list to choose from.  And any division of the
gradients, in the order in which they become ready, into runs is what some list of caps gives.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ddp.reduction.bucketing import DEFAULT_CAP_MB, MIB, assign_buckets


@dataclass(frozen=True, slots=True)
class CapRange:
    """Caps that divide the gradients alike.

    Attributes:
        low: the smallest of them, in bytes.
        high: the largest, in bytes; None: there is none.
        nbytes: size of each bucket that they give, in the order in which these are reduced.
    """

    low: int
    high: int | None
    nbytes: tuple[int, ...]

    @property
    def cap_mb(self) -> float:
        """Torch's default where it is one of them, else the one with the fewest digits, in MiB."""
        default = int(DEFAULT_CAP_MB * MIB)
        if self.low <= default and (self.high is None or default <= self.high):
            return DEFAULT_CAP_MB
        return shortest_mb(self.low, self.high)


def distinct_caps(
    nbytes: Sequence[int], keys: Sequence[Hashable], order: Sequence[int]
) -> tuple[CapRange, ...]:
    """Return every division that one cap for all buckets can give, from small caps to large.

    Args:
        nbytes: size of each gradient in bytes.
        keys: what the members of a bucket must have in common.
        order: the gradients in the order in which they become ready.
    """
    ranges: list[CapRange] = []
    before: list[list[int]] = []
    cap = 1
    while True:
        buckets = assign_buckets(nbytes, keys, (cap,), order)
        sizes = tuple(sum(nbytes[index] for index in bucket) for bucket in buckets)
        closed = [size for size in sizes if size >= cap]
        high = min(closed) if closed else None
        if buckets == before:
            ranges[-1] = CapRange(ranges[-1].low, high, sizes)
        else:
            ranges.append(CapRange(cap, high, sizes))
        if high is None:
            return tuple(ranges)
        before, cap = buckets, high + 1


def caps_for(sizes: Sequence[int], cuts: Sequence[int]) -> tuple[float, ...]:
    """Return a list of caps, in MiB, that divides gradients of one kind as wanted.

    Args:
        sizes: of the gradients in the order in which they become ready, in bytes, all above 0.
        cuts: increasing positions; a bucket ends before each of them, the last one at the end.

    Returns:
        As few caps as possible, since the last one repeats.
    """
    ends = list(accumulate(sizes))
    ranges: list[tuple[int, int | None]] = []
    begin = 0
    for cut in (*cuts, len(sizes)):
        start = ends[begin - 1] if begin else 0
        high = None if cut == len(sizes) else ends[cut - 1] - start
        ranges.append((ends[cut - 1] - sizes[cut - 1] - start + 1, high))
        begin = cut
    low, high = ranges.pop()
    while ranges and ranges[-1][0] <= (high or ranges[-1][0]) and low <= (ranges[-1][1] or low):
        other_low, other_high = ranges.pop()
        low, high = max(low, other_low), other_high if high is None else min(high, other_high or high)
    return tuple(shortest_mb(*limits) for limits in (*ranges, (low, high)))


def shortest_mb(low: int, high: int | None) -> float:
    """Return the number of MiB with the fewest digits that is *low* to *high* bytes."""
    for digits in range(-2, 7):
        unit, scale = int(10 ** max(-digits, 0)), int(10 ** max(digits, 0))
        count = -(-low * scale // (MIB * unit))
        value = count * unit if digits <= 0 else count / scale
        if low <= int(value * MIB) and (high is None or int(value * MIB) <= high):
            return value
    return low / MIB
