"""Training on rank threads, for tests of strategies that update parameters themselves."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from collectives.virtual import run_virtual
from ddp import DistributedDataParallel, OverlappedOptimizer
from sim.topology import Topology

OVERLAPPED = [
    "dear", "priority:partition_mb=0.0001,credits=1", "priority:partition_mb=0.0005,credits=3", "zero1",
    "zero1:prefetch=True", "data_parallel",
]  # fmt: skip
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda own: torch.optim.SGD(own, lr=0.05, momentum=0.9, weight_decay=0.01),
    "adam": lambda own: torch.optim.Adam(own, lr=0.01),
}


def on_ranks(function: Callable[[int], Any], num_ranks: int = 2, backend: str = "gloo") -> list[Any]:
    def run(rank):
        dist.init_process_group(backend)
        torch.manual_seed(0)
        result = function(rank)
        dist.destroy_process_group()
        return result

    return run_virtual(run, Topology.switch(num_ranks=num_ranks, bandwidth="1Gbps", latency="5us")).results


def layers(widths: list[int]) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(widths)))


def overlapped(
    module: nn.Module, strategy: str, optimizer: str = "sgd", **options
) -> tuple[DistributedDataParallel, OverlappedOptimizer]:
    """Return *module* wrapped, and its optimizer."""
    model = DistributedDataParallel(module, strategy=strategy, **{"algorithm": "ring", **options})
    return model, OverlappedOptimizer(model, OPTIMIZERS[optimizer])


def assert_alike(one: Callable[[int, Any], list[torch.Tensor]], *ways, num_ranks: int = 2) -> None:
    """Check that each rank comes to the same bits in all *ways*."""
    first, *others = (on_ranks(lambda rank, way=way: one(rank, way), num_ranks) for way in ways)
    for other in others:
        for expected, got in zip(first, other, strict=True):
            assert len(expected) == len(got)
            assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
