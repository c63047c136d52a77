"""Gradient accumulation: gradients of k backward passes are added locally and reduced in the last.

The communication of k passes becomes that of one; the batch is k times larger.  What is reduced is the sum
over the k passes (and the mean over the ranks), as with ``no_sync``; divide the loss by k for their mean.

It promises: never slower than k passes of `after_backward` with the same buckets.

Source: as in Li et al., VLDB 13(12), 2020, section 3.2.4 (skipping synchronisation).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ddp.errors import UnknownStrategyError
from ddp.reduction.strategies.after_backward import AfterBackward
from ddp.reduction.strategies.mg_wfbp import MergedGradients
from ddp.reduction.strategies.per_parameter import PerParameter
from ddp.reduction.strategies.plan import Layout, Plan
from ddp.reduction.strategies.strategy import Situation, Strategy
from ddp.reduction.strategies.wait_free import WaitFree

LAST_PASS: Mapping[str, Strategy] = MappingProxyType(
    {own.kind: own for own in (AfterBackward(), PerParameter(), WaitFree(), MergedGradients())}
)


@dataclass(frozen=True)
class Accumulate(Strategy):
    """See the module's docstring.

    Attributes:
        k: backward passes until gradients are reduced.
        last: strategy of the last pass, by its name.
    """

    k: int = 2
    last: str = "wait_free"

    kind = "accumulate"

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            UnknownStrategyError: a parameter is out of range.
        """
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise UnknownStrategyError(f"accumulate: k must be a whole number from 1, got {self.k!r}")
        if self.last not in LAST_PASS:
            raise UnknownStrategyError(
                f"accumulate: last must be one of {', '.join(LAST_PASS)}, got {self.last!r}; with the others "
                "use no_sync()"
            )

    @property
    def needs_timing(self) -> bool:
        """Whether the last pass needs it."""
        return LAST_PASS[self.last].needs_timing

    @property
    def num_passes(self) -> int:
        """Backward passes until gradients are reduced."""
        return self.k

    def plan(self, layout: Layout) -> Plan:
        """Plan as the last pass's strategy does."""
        return LAST_PASS[self.last].plan(layout)

    def choose(self, situation: Situation) -> int:
        """Choose as the last pass's strategy does."""
        return LAST_PASS[self.last].choose(situation)
