"""A call whose end a test decides."""

from dataclasses import dataclass, field
from typing import Any

import simpy


@dataclass
class AtTimes:
    """A call that ends for each rank at a time of its own after all have come."""

    env: simpy.Environment
    delays: dict[int, int]
    come: dict[int, Any] = field(default_factory=dict)

    def begin(self, ranks, through) -> None:
        for rank in ranks:
            self.come[rank] = through
        if len(self.come) == len(self.delays):
            met_ps = int(self.env.now)
            for rank, delay in self.delays.items():
                self.env.timeout(delay).callbacks.append(lambda _, rank=rank: self.come[rank]([rank], met_ps))
