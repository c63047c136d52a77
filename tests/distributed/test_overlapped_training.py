"""Every strategy trains over Gloo as plain DDP does, and shows what became of its buckets."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import ddp
from ddp.reduction.overlap import STRATEGIES
from tests.distributed.pool import WorkerPool

pytestmark = pytest.mark.distributed
TRAINING = [
    *(name for name, strategy in STRATEGIES.items() if strategy.num_passes == 1),
    "priority:partition_mb=0.001,credits=2",
    "zero1:prefetch=True",
]


def train(rank: int, strategy: str, algorithm: str) -> tuple[list[torch.Tensor], list[dict[str, Any]]]:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(20, 50), nn.ReLU(), nn.BatchNorm1d(50), nn.Linear(50, 30), nn.Linear(30, 3)
    )
    model = ddp.DistributedDataParallel(module, strategy=strategy, bucket_cap_mb=0.005, algorithm=algorithm)
    optimizer = ddp.OverlappedOptimizer(model, lambda own: torch.optim.Adam(own, lr=0.01))
    data = torch.Generator().manual_seed(rank)
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 20, generator=data)).square().mean()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach())  # traffic of the script's own, while buckets may be on their way
    optimizer.synchronize()
    return [parameter.detach().clone() for parameter in model.parameters()], model.bucket_rows()


def train_with_all(rank: int, world_size: int, algorithm: str) -> dict[str, Any]:
    return {strategy: train(rank, strategy, algorithm) for strategy in TRAINING}


@pytest.mark.parametrize("algorithm", ["native", "ring"])
def test_every_strategy_ends_with_the_bits_of_training_without_overlap(
    pool: WorkerPool, algorithm: str
) -> None:
    ranks = pool.run(train_with_all, 2, algorithm)

    expected, _ = ranks[0]["after_backward"]
    for results in ranks:
        for strategy, (parameters, rows) in results.items():
            assert all(torch.equal(a, b) for a, b in zip(expected, parameters, strict=True)), strategy
            assert rows, strategy
            for row in rows:
                assert row["complete_us"] <= row["launched_us"] <= row["start_us"] <= row["end_us"], strategy
                assert row["exposed_us"] >= 0
            once = [row for row in rows if row["collective"] not in ("all_gather", "broadcast")]
            sizes = sum(row["size_bytes"] for row in once)
            assert abs(sizes - 4 * sum(parameter.numel() for parameter in parameters)) <= 8 * len(once)


def clip_with_all(rank: int, world_size: int, algorithm: str) -> dict[str, list[float]]:
    return {name: clipped_norms(rank, name, algorithm) for name in TRAINING}


def clipped_norms(rank: int, strategy: str, algorithm: str) -> list[float]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 3)).double()
    model = ddp.DistributedDataParallel(module, strategy=strategy, bucket_cap_mb=0.005, algorithm=algorithm)
    optimizer = ddp.OverlappedOptimizer(model, lambda own: torch.optim.SGD(own, lr=0.5))
    data = torch.Generator().manual_seed(rank)
    norms = []
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 20, generator=data).double()).square().mean().backward()
        norms.append(optimizer.clip_grad_norm_(0.1).item())
        optimizer.step()
    return norms


@pytest.mark.costly
@pytest.mark.parametrize("algorithm", ["native", "ring"])
def test_every_strategy_clips_to_the_same_norms(pool: WorkerPool, algorithm: str) -> None:
    ranks = pool.run(clip_with_all, 3, algorithm)

    expected = ranks[0]["after_backward"]
    assert min(expected) > 0.1
    for results in ranks:
        for strategy, norms in results.items():
            assert norms == pytest.approx(expected, rel=1e-9), strategy
