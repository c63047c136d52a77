"""Bucketing: a pure function from parameters to the buckets in which their gradients travel.

One all-reduce per gradient would pay the latency of the network for each; one for all of them
could not start before the last gradient is ready.  So gradients are gathered into *buckets*, in
the order in which they become ready, and a bucket is closed as soon as it has reached its limit.
A parameter is never split, so a bucket may exceed its limit by one parameter.

The rule is that of ``torch.distributed._compute_bucket_assignment_by_size``; torch itself is the
oracle of the tests.  Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data
Parallel Training", VLDB 13(12), 2020, section 3.2.3.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from ddp.errors import BucketingError

MIB = 2**20
DEFAULT_CAP_MB = 25.0
DEFAULT_FIRST_BUCKET_BYTES = MIB


def bucket_limits(
    bucket_cap_mb: float | None, bucket_cap_mb_list: Sequence[float] | None = None
) -> tuple[int, ...]:
    """Return the limits, in bytes, of the first bucket, the second and so on; the last one repeats.

    By default the first bucket is small, so that communication starts early; a cap that the user
    chose holds for every bucket.  As in torch, a list that is not empty wins over the one cap.

    Raises:
        BucketingError: a cap is not a positive number.
    """
    if bucket_cap_mb_list:
        return tuple(_limit("bucket_cap_mb_list", cap) for cap in bucket_cap_mb_list)
    if bucket_cap_mb is None:
        return (DEFAULT_FIRST_BUCKET_BYTES, int(DEFAULT_CAP_MB * MIB))
    return (_limit("bucket_cap_mb", bucket_cap_mb),)


def assign_buckets(
    nbytes: Sequence[int],
    keys: Sequence[Hashable],
    limits: Sequence[int],
    order: Sequence[int] | None = None,
) -> list[list[int]]:
    """Divide parameters into buckets.

    Args:
        nbytes: size of each parameter's gradient in bytes.
        keys: what the members of a bucket must have in common, for example (dtype, device).
        limits: a bucket is closed when it holds at least so many bytes: the first limit is for
            the first bucket of each key, and so on; the last limit repeats.
        order: the parameters in the order in which their gradients become ready.  If None, they
            are taken as they come and the buckets are sorted by their first parameter.

    Returns:
        For each bucket, in the order in which they are reduced, the indices of its parameters.

    Raises:
        BucketingError: the arguments do not fit together.
    """
    visit = range(len(nbytes)) if order is None else order
    _check(nbytes, keys, limits, visit)
    closed: list[list[int]] = []
    open_buckets: dict[Hashable, list[int]] = {}
    num_closed: dict[Hashable, int] = {}
    filled: dict[Hashable, int] = {}
    for index in visit:
        key = keys[index]
        open_buckets.setdefault(key, []).append(index)
        filled[key] = filled.get(key, 0) + nbytes[index]
        position = num_closed.get(key, 0)
        if filled[key] >= limits[min(position, len(limits) - 1)]:
            closed.append(open_buckets.pop(key))
            filled[key] = 0
            num_closed[key] = position + 1
    buckets = closed + list(open_buckets.values())
    return sorted(buckets, key=min) if order is None else buckets


def _limit(name: str, cap_mb: float) -> int:
    if not 1 <= cap_mb * MIB < math.inf:
        raise BucketingError(f"{name} must be a positive number of MiB, got {cap_mb!r}")
    return int(cap_mb * MIB)


def _check(
    nbytes: Sequence[int], keys: Sequence[Hashable], limits: Sequence[int], visit: Sequence[int]
) -> None:
    if len(keys) != len(nbytes):
        raise BucketingError(f"expected one key per parameter, got {len(keys)} keys for {len(nbytes)}")
    if not limits or min(limits) < 1:
        raise BucketingError(f"limits must be positive numbers of bytes, at least one, got {list(limits)}")
    if any(size < 0 for size in nbytes):
        raise BucketingError(f"a gradient cannot have {min(nbytes)} bytes")
    if sorted(visit) != list(range(len(nbytes))):
        raise BucketingError(
            f"order must name each of the {len(nbytes)} parameters once, got {len(visit)} indices"
        )
