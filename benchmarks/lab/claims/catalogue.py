"""Catalogue of the claims, in their order, each with the trial that it is put to.

The claims are those of introductory texts on distributed training: of figures that hold somewhere, and are
passed on without saying where.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.lab.claims import measured, memory, overlap, pipeline, scaling
from benchmarks.lab.claims.claim import Claim, Finding
from testbed.errors import UsageError

Trial = Callable[[], Finding]

TRIALS: dict[str, tuple[Claim, Trial]] = {
    claim.id: (claim, trial)
    for claim, trial in (
        (overlap.BUCKETS, overlap.buckets),
        (overlap.HIDDEN, overlap.hidden),
        (overlap.SHARE, overlap.share),
        (overlap.COST, overlap.cost),
        (scaling.NETWORKS, scaling.networks),
        (scaling.STRONG, scaling.strong),
        (scaling.WEAK, scaling.weak),
        (overlap.ACCUMULATION, overlap.accumulation),
        (measured.HALF, measured.half),
        (measured.VIEWS, measured.views),
        (scaling.DATA_PARALLEL, scaling.data_parallel),
        (pipeline.CLAIM, pipeline.pipeline),
        (memory.CLAIM, memory.memory),
        (measured.WHOLE, measured.whole_batch),
    )
}
"""By id, ``C1`` to ``C14``."""


def chosen(ids: Sequence[str]) -> list[str]:
    """Return *ids* in the order of the catalogue; all where none is given.

    Raises:
        UsageError: there is no such claim, or what one of them needs is not installed.
    """
    wanted = {name.upper() for name in ids}
    unknown = sorted(wanted - TRIALS.keys())
    if unknown:
        raise UsageError(f"no claim {unknown[0]!r}: expected one of {', '.join(TRIALS)}")
    names = [name for name in TRIALS if name in wanted or not wanted]
    if measured.HALF.id in names:
        measured.check_data()
    return names
