"""Options of one module's reduction, as the arguments of `DistributedDataParallel` make them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddp.reduction.overlap import Strategy

NO_LIMIT = 2**62


@dataclass(frozen=True)
class ReductionOptions:
    """How the gradients of one module are reduced.

    Attributes:
        strategy: when complete buckets go.
        first_limits: limits of the buckets of the first pass; see `ddp.reduction.bucketing.assign_buckets`.
        limits: limits of the buckets of later passes.
        rebuilds: whether there are other buckets in later passes.
        as_view: let gradients be views of the buckets.
        batched: copy the gradients of a bucket all at once.
        skips_unused: do not reduce buckets of which no parameter is used, on any rank.
        sparse: indices of parameters whose gradients are sparse.
    """

    strategy: Strategy
    first_limits: Sequence[int] = (NO_LIMIT,)
    limits: Sequence[int] = (NO_LIMIT,)
    rebuilds: bool = True
    as_view: bool = False
    batched: bool = False
    skips_unused: bool = False
    sparse: frozenset[int] = frozenset()
