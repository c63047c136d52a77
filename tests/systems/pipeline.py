"""Layers one after another on ranks, and micro-batches that flow through them."""

from collections.abc import Callable

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage

from tests.systems.training import NUM_ROWS, NUM_STEPS, batch, sgd, train, whole

NUM_LAYERS = 8
NUM_MICRO_BATCHES = NUM_ROWS

StagesOf = Callable[[int, int], list[int]]
"""The stages of a rank, in ascending order; takes rank and world size."""


def one_each(rank: int, world_size: int) -> list[int]:
    """Return the only stage of *rank*."""
    return [rank]


def in_loops(rank: int, world_size: int) -> list[int]:
    """Return two stages, where the last rank's first one is followed by the first rank's second."""
    return [rank, rank + world_size]


def there_and_back(rank: int, world_size: int) -> list[int]:
    """Return two stages, where the first rank has the first and the last."""
    return [rank, 2 * world_size - 1 - rank]


def deep_network() -> nn.Sequential:
    """Return a model of equal pieces."""
    torch.manual_seed(4)
    return nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(NUM_LAYERS))).double()


def pieces_of(model: nn.Sequential, stages: list[int], num_stages: int) -> list[nn.Sequential]:
    """Return the layers of each of *stages*."""
    layers = NUM_LAYERS // num_stages
    return [model[layers * stage : layers * (stage + 1)] for stage in stages]


def stages(rank: int, world_size: int, schedule_class, stages_of: StagesOf) -> list[torch.Tensor]:
    """Train, and return this rank's parameters."""
    of_rank = stages_of(rank, world_size)
    num_stages = world_size * len(of_rank)
    pieces = pieces_of(deep_network(), of_rank, num_stages)
    mine = [
        PipelineStage(piece, stage, num_stages, torch.device("cpu"))
        for piece, stage in zip(pieces, of_rank, strict=True)
    ]
    arguments = mine if len(mine) > 1 else mine[0]
    schedule = schedule_class(arguments, NUM_MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
    parameters = [parameter for piece in pieces for parameter in piece.parameters()]
    optimizer = sgd(parameters)
    inputs, targets = batch()
    given = (inputs,) if 0 in of_rank else ()
    wanted = {"target": targets} if num_stages - 1 in of_rank else {}
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        schedule.step(*given, **wanted)
        optimizer.step()
    return whole(parameters)


def stages_alone(rank: int, world_size: int, stages_of: StagesOf) -> list[torch.Tensor]:
    """Train the whole in one process; return the parameters that this rank has."""
    model = deep_network()
    train(model, sgd(model.parameters()), *batch())
    of_rank = stages_of(rank, world_size)
    pieces = pieces_of(model, of_rank, world_size * len(of_rank))
    return whole(parameter for piece in pieces for parameter in piece.parameters())
