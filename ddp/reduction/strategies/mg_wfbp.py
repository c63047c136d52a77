"""Optimal merging: buckets such that communication ends first, by a line of costs.

Gradients become ready one after another, at known times; an all-reduce of n bytes takes α + β·n; one
runs at a time.  Merging a gradient with the next saves α, but must wait for it.  The earliest end E(j)
of the communication of the first j gradients is

    E(j) = min over i < j of  max(E(i), ready(j)) + α + β · (bytes of the gradients i+1 … j)

because a later E(i) never helps.  So it is found exactly, in at most O(L²) for L gradients.  Gradients of
different dtypes or devices cannot merge; only neighbours in ready order are considered.

The paper merges greedily and proves that optimal under its assumptions.
Caps do not matter.  The times are those of rank 0, the costs a line through two sizes measured.
It promises: by that line, communication ends no later than with any other buckets of neighbours.

Source: Shi, Chu and Li, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD
Algorithms", INFOCOM 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddp.reduction.strategies.plan import Layout, PassTiming, Plan
from ddp.reduction.strategies.strategy import Strategy


@dataclass(frozen=True)
class MergedGradients(Strategy):
    """Buckets of least end; see the module's docstring."""

    kind = "mg_wfbp"

    @property
    def needs_timing(self) -> bool:
        """Whether the plan needs ready times and costs."""
        return True

    def plan(self, layout: Layout) -> Plan:
        """Merge; before times are known, buckets as torch's."""
        if layout.order is None or layout.timing is None:
            return super().plan(layout)
        return Plan.of_whole_buffers(merge(layout.order, layout, layout.timing))


def merge(order: Sequence[int], layout: Layout, timing: PassTiming) -> list[list[int]]:
    """Return the buckets with which communication ends first; of equals those with the longest last ones."""
    ready: list[int] = []
    for parameter in order:
        ready.append(max([timing.ready_ps[parameter], *ready[-1:]]))

    free, first = [0], [0]
    for end in range(1, len(order) + 1):
        last = order[end - 1]
        nbytes = layout.nbytes[last]
        begin, earliest = end - 1, max(free[end - 1], ready[end - 1]) + timing.cost.ps(nbytes)
        for sooner in range(end - 2, -1, -1):
            nbytes += layout.nbytes[order[sooner]]
            takes = timing.cost.ps(nbytes)
            if layout.keys[order[sooner]] != layout.keys[last] or ready[end - 1] + takes > earliest:
                break  # larger ones take longer still
            if max(free[sooner], ready[end - 1]) + takes <= earliest:
                begin, earliest = sooner, max(free[sooner], ready[end - 1]) + takes
        free.append(earliest)
        first.append(begin)

    buckets, end = [], len(order)
    while end:
        buckets.append(list(order[first[end] : end]))
        end = first[end]
    return buckets[::-1]
