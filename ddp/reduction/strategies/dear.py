"""Decoupled all-reduce: reduce-scatter in the backward pass, all-gather hidden in the next forward pass.

Both halves of an all-reduce cost the same, and no more together than the whole.  The first half of each
bucket goes as soon as it is complete.  The second halves go when the backward pass has ended, in the order
in which the next forward pass needs their parameters, and a layer waits for its own only.

It promises: never slower than `after_backward` with the same buckets, as far as a reduce-scatter and an
all-gather take no longer than the all-reduce (rings on a switch, and buckets that the ranks divide).

Source: Zhang et al., "DeAR: Accelerating Distributed Deep Learning with Fine-Grained All-Reduce
Pipelining", ICDCS 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from ddp.reduction.strategies.plan import ALL_GATHER, REDUCE_SCATTER, Layout, Plan, PlannedLaunch
from ddp.reduction.strategies.strategy import Barrier, Situation, Strategy


def scatter_and_gather(layout: Layout) -> Plan:
    """Return torch's buckets, reduce-scattered in ready order and then all-gathered the other way round."""
    buckets = layout.buckets()
    numbers = range(len(buckets))
    scatters = [PlannedLaunch(number, REDUCE_SCATTER) for number in numbers]
    gathers = [PlannedLaunch(number, ALL_GATHER) for number in reversed(numbers)]
    return Plan.of_whole_buffers(buckets, scatters + gathers)


@dataclass(frozen=True)
class Dear(Strategy):
    """See the module's docstring."""

    kind = "dear"
    update_after = ALL_GATHER

    @property
    def barrier(self) -> Barrier:
        """Before what a rank waits until its buckets have arrived."""
        return Barrier.USE

    def plan(self, layout: Layout) -> Plan:
        """Plan two collectives for each bucket."""
        return scatter_and_gather(layout)

    def choose(self, situation: Situation) -> int:
        """Launch what is ready; all-gathers only after the backward pass."""
        if situation.backward_ended:
            return len(situation.ready)
        return sum(1 for _ in takewhile(lambda own: own.collective == REDUCE_SCATTER, situation.ready))
