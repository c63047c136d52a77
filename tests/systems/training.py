"""The one training that every system here has to do, and what it gives in a single process.

A system trains on parts of the batch, or with parts of the model; all use double precision, so that
`TOLERANCE` tells rounding (another order of the same sums) from training on anything else.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

TOLERANCE = 1e-12
NUM_STEPS = 3
NUM_ROWS = 8


def network() -> nn.Sequential:
    """Return the model, with the same parameters every time."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)).double()


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets of the whole batch."""
    generator = torch.Generator().manual_seed(7)
    shape = (NUM_ROWS, 4)
    return torch.randn(shape, generator=generator).double(), torch.randn(shape, generator=generator).double()


def part_of(rank: int, world_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this rank's rows of the batch."""
    inputs, targets = batch()
    return inputs.chunk(world_size)[rank], targets.chunk(world_size)[rank]


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return an optimizer with a state of its own."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return an optimizer with more state."""
    return torch.optim.Adam(parameters, lr=0.01)


def train(
    model: Callable[[torch.Tensor], torch.Tensor],
    optimizer: torch.optim.Optimizer,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    num_steps: int = NUM_STEPS,
) -> None:
    """Take some steps on the mean squared error of the same rows."""
    for _ in range(num_steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def whole(tensors: Iterable[Any]) -> list[torch.Tensor]:
    """Return *tensors* without gradients, and those that are spread over ranks in full."""
    return [
        (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()
        for tensor in tensors
    ]


def alone(optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] = sgd) -> list[torch.Tensor]:
    """Return the parameters after training in one process on the whole batch."""
    model = network()
    train(model, optimizer(model.parameters()), *batch())
    return whole(model.parameters())


def trained_alone(rank: int, world_size: int) -> list[torch.Tensor]:
    """Return what every rank must have after training with SGD."""
    return alone()


def trained_alone_with_adam(rank: int, world_size: int) -> list[torch.Tensor]:
    """Return what every rank must have after training with Adam."""
    return alone(adam)
