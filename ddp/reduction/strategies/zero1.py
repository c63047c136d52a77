"""Sharded optimizer: each rank keeps the optimizer's state of its part of every bucket, and updates that.

Gradients are reduce-scattered in the backward pass; the optimizer's step updates the rank's own parts, and
all-gathers bring the new parameters to everybody.  As many bytes travel as in an all-reduce, and the
optimizer's state takes 1/p of the memory.

``prefetch=True`` lets the step return at once; a layer of the next forward pass waits for its own
parameters only.

The parts do not follow the borders of parameters, so the optimizer must work element by element (SGD,
Adam, …).  Buckets are planned once, in the reverse order of registration, because state belongs to parts.
It promises nothing: the all-gathers wait for the optimizer.

Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020,
section 5.1 (P_os); gradients are not kept in parts, so it is stage 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from ddp.errors import UnknownStrategyError
from ddp.reduction.strategies.dear import scatter_and_gather
from ddp.reduction.strategies.plan import REDUCE_SCATTER, Layout, Plan
from ddp.reduction.strategies.strategy import Barrier, Strategy


@dataclass(frozen=True)
class Zero1(Strategy):
    """See the module's docstring.

    Attributes:
        prefetch: hide the all-gathers in the next forward pass.
    """

    prefetch: bool = False

    kind = "zero1"
    update_after = REDUCE_SCATTER
    shards_update = True
    plans_once = True

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            UnknownStrategyError: *prefetch* is not True or False.
        """
        if not isinstance(self.prefetch, bool):
            raise UnknownStrategyError(f"zero1: prefetch must be True or False, got {self.prefetch!r}")

    @property
    def barrier(self) -> Barrier:
        """Before what a rank waits until its buckets have arrived."""
        return Barrier.USE if self.prefetch else Barrier.STEP

    def plan(self, layout: Layout) -> Plan:
        """Plan two collectives for each bucket."""
        return scatter_and_gather(layout)
