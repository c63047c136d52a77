"""Overlap strategies: a plan, a policy, and the point at which a rank waits.

*Plan*: which gradients travel together, in which order, by which collectives; made once.
*Policy*: how many of the next planned launches go now; asked again and again.
*Barrier*: what must not begin before the buckets have arrived: whatever follows the backward pass, the
return of the optimizer's step, or the use of a parameter in the next forward pass.

To add a strategy: a frozen dataclass in a file of its own, and a line in `ddp.reduction.overlap`.  Its fields
are its parameters, as in ``priority:partition_mb=4,credits=2``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import ClassVar

from ddp.reduction.strategies.plan import Layout, Plan, PlannedLaunch


class Barrier(Enum):
    """Before what a rank waits until its buckets have arrived."""

    BACKWARD_END = "the end of the backward pass"
    STEP = "the end of the optimizer's step"
    USE = "the next use of the parameter"


@dataclass(frozen=True, slots=True)
class Situation:
    """What a policy sees.

    Attributes:
        ready: the next planned launches, up to the first that cannot go yet.
        in_flight: collectives that have been launched and have not completed.
        backward_ended: no further gradient will become ready in this pass.
    """

    ready: tuple[PlannedLaunch, ...]
    in_flight: int
    backward_ended: bool


@dataclass(frozen=True)
class Strategy:
    """Base of all overlap strategies: torch's buckets, each all-reduced as soon as it may.

    Attributes:
        kind: its name without parameters.
        update_after: the collective after which the parameters of a bucket are updated; None: the user's
            optimizer does that after the backward pass.
        shards_update: whether each rank updates its own part of a bucket only.
        updates_on_root: whether rank 0 alone updates.
        plans_once: whether the first plan holds for good, made before any gradient was seen.
        simulated_only: whether something else trains with it, so that it can be simulated and no more.
    """

    kind: ClassVar[str] = ""
    update_after: ClassVar[str | None] = None
    shards_update: ClassVar[bool] = False
    updates_on_root: ClassVar[bool] = False
    plans_once: ClassVar[bool] = False
    simulated_only: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """As users write it: parameters that are not at their defaults included."""
        own = [
            f"{each.name}={value:g}"
            if isinstance(value := getattr(self, each.name), float)
            else f"{each.name}={value}"
            for each in fields(self)
            if getattr(self, each.name) != each.default
        ]
        return self.kind + (":" + ",".join(own) if own else "")

    @property
    def barrier(self) -> Barrier:
        """Where a rank waits.

        Only with ``BACKWARD_END`` are gradients in place when the backward pass returns; the others
        update parameters themselves and need `ddp.OverlappedOptimizer`.
        """
        return Barrier.BACKWARD_END

    @property
    def updates_parameters(self) -> bool:
        """Whether parameters are updated as their gradients arrive, not by the user's own optimizer."""
        return self.barrier is not Barrier.BACKWARD_END

    @property
    def whole_buckets(self) -> bool:
        """Whether every backward pass leaves averaged gradients in place, as torch's does."""
        return not self.updates_parameters and self.num_passes == 1

    @property
    def needs_timing(self) -> bool:
        """Whether the plan needs ready times and costs."""
        return False

    @property
    def num_passes(self) -> int:
        """Backward passes until gradients are reduced."""
        return 1

    def plan(self, layout: Layout) -> Plan:
        """Return the plan, from *layout* alone."""
        return Plan.of_whole_buffers(layout.buckets())

    def choose(self, situation: Situation) -> int:
        """Return how many of the launches that are ready go now.

        It may be 0 as long as something is in flight, or the backward pass has not ended.
        """
        return len(situation.ready)
