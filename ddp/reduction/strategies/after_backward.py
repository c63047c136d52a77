"""No overlap: all buckets are launched when the backward pass has ended.  The baseline."""

from __future__ import annotations

from dataclasses import dataclass

from ddp.reduction.strategies.strategy import Situation, Strategy


@dataclass(frozen=True)
class AfterBackward(Strategy):
    """No overlap; see the module's docstring."""

    kind = "after_backward"

    def choose(self, situation: Situation) -> int:
        """Launch everything at the end, and nothing before."""
        return len(situation.ready) if situation.backward_ended else 0
