"""Tests that check replicas: ranks that hold the same parameters hold the same bits after every step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from testbed.testing import ReplicasPartError, VirtualCluster, on_ranks


def train(rank: int, averages: bool = True) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layer = nn.Linear(2, 2)
    model = DistributedDataParallel(layer) if averages else layer
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.full((1, 2), float(rank))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@on_ranks(3, check="replicas")
def test_replicas_that_stay_alike_pass(rank: int) -> None:
    train(rank)


@pytest.mark.parametrize(
    ("work", "said"), [(train, "weight"), (lambda rank, _: None, "nothing was compared")]
)
def test_replicas_that_part_and_a_check_of_nothing_fail(work: Any, said: str) -> None:
    with pytest.raises(ReplicasPartError, match=said):
        VirtualCluster(3, check="replicas").run(work, False)


@pytest.mark.parametrize("wrong", [{"check": "all"}, {"check": "replicas", "orders": "all"}])
def test_checks_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="check"):
        VirtualCluster(3, **wrong)
