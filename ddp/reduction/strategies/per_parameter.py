"""Wait-free backpropagation without buckets: every gradient travels alone.

Every gradient pays the latency of the network.  It promises: never slower than launching the same
messages after the backward pass.

Source: Zhang et al., "Poseidon", USENIX ATC 2017, section 3.1, which knows no buckets.
"""

from __future__ import annotations

from dataclasses import dataclass

from ddp.reduction.strategies.plan import Layout, Plan
from ddp.reduction.strategies.strategy import Strategy


@dataclass(frozen=True)
class PerParameter(Strategy):
    """A bucket for every parameter; caps do not matter."""

    kind = "per_parameter"

    def plan(self, layout: Layout) -> Plan:
        """Give every parameter a bucket, in ready order; before that is known, buckets as torch's."""
        if layout.order is None:
            return super().plan(layout)
        return Plan.of_whole_buffers([[parameter] for parameter in layout.order])
