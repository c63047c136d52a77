"""Training on rank threads, for tests of strategies that update parameters themselves."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from collectives.virtual import run_virtual
from sim.topology import Topology

OVERLAPPED = [
    "dear",
    "priority:partition_mb=0.0001,credits=1",
    "priority:partition_mb=0.0005,credits=3",
    "zero1",
    "zero1:prefetch=True",
    "data_parallel",
]
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda own: torch.optim.SGD(own, lr=0.05, momentum=0.9, weight_decay=0.01),
    "adam": lambda own: torch.optim.Adam(own, lr=0.01),
}


def on_ranks(function: Callable[[int], Any], num_ranks: int = 2, backend: str = "gloo") -> list[Any]:
    def run(rank: int) -> Any:
        dist.init_process_group(backend)
        torch.manual_seed(0)
        result = function(rank)
        dist.destroy_process_group()
        return result

    results: list[Any] = run_virtual(
        run, Topology.switch(num_ranks=num_ranks, bandwidth="1Gbps", latency="5us")
    ).results
    return results


def layers(widths: list[int]) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(widths)))
