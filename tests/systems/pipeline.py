"""Layers one after another on ranks, and micro-batches that flow through them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

from tests.systems.training import NUM_STEPS, batch, sgd, train, whole

NUM_MICRO_BATCHES = 4


def deep_network() -> nn.Sequential:
    """Return a model of four equal pieces."""
    torch.manual_seed(4)
    return nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4))).double()


def stages(
    rank: int, world_size: int, schedule_class: Any = ScheduleGPipe, stages_per_rank: int = 1
) -> list[torch.Tensor]:
    """Train; stage s is on rank s modulo the number of ranks.  Return this rank's parameters."""
    num_stages = stages_per_rank * world_size
    pieces = [
        nn.Sequential(*list(deep_network())[4 * stage // num_stages : 4 * (stage + 1) // num_stages])
        for stage in range(rank, num_stages, world_size)
    ]
    mine = [
        PipelineStage(piece, rank + world_size * n, num_stages, torch.device("cpu"))
        for n, piece in enumerate(pieces)
    ]
    arguments = mine if stages_per_rank > 1 else mine[0]
    schedule = schedule_class(arguments, NUM_MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
    parameters = [parameter for piece in pieces for parameter in piece.parameters()]
    optimizer = sgd(parameters)
    inputs, targets = batch()
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        given = (inputs,) if rank == 0 else ()
        if rank == world_size - 1:
            schedule.step(*given, target=targets)
        else:
            schedule.step(*given)
        optimizer.step()
    return whole(parameters)


def stages_alone(rank: int, world_size: int, stages_per_rank: int = 1) -> list[torch.Tensor]:
    """Train the whole in one process; return the parameters that this rank has."""
    model = deep_network()
    train(model, sgd(model.parameters()), *batch())
    num_stages = stages_per_rank * world_size
    pieces = [
        list(model)[4 * stage // num_stages : 4 * (stage + 1) // num_stages]
        for stage in range(rank, num_stages, world_size)
    ]
    return whole(parameter for piece in pieces for layer in piece for parameter in layer.parameters())
