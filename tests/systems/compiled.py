"""Models that are compiled before they are wrapped."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from tests.systems.training import network, part_of, sgd, train, whole


def inside(rank: int, world_size: int) -> list[torch.Tensor]:
    """Wrap a compiled model."""
    compiled = torch.compile(network(), backend="aot_eager")
    model = DistributedDataParallel(compiled)
    train(model, sgd(model.parameters()), *part_of(rank, world_size))
    return whole(model.parameters())


def outside(rank: int, world_size: int) -> list[torch.Tensor]:
    """Compile a wrapped model."""
    model = DistributedDataParallel(network())
    compiled = torch.compile(model, backend="aot_eager")
    train(compiled, sgd(model.parameters()), *part_of(rank, world_size))
    return whole(model.parameters())
