"""Models, data, and the training that most scenarios vary."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

Optimizers = Callable[[Any], Any]
"""What makes the optimizer of a model."""

WIDE = (24, 64, 48, 4)


def net(*widths: int) -> nn.Sequential:
    """Return layers with activations between them, by default two."""
    torch.manual_seed(0)
    layers = [[nn.Linear(before, after), nn.ReLU()] for before, after in pairwise(widths or (4, 8, 2))]
    return nn.Sequential(*[part for layer in layers for part in layer][:-1])


def line() -> nn.Linear:
    """Return a layer of one weight, whose gradient is the mean of what ranks put in."""
    return nn.Linear(1, 1, bias=False)


def number(value: float) -> torch.Tensor:
    """Return what ranks put in."""
    return torch.full((1, 1), float(value))


def inputs(rank: int, steps: int, *shape: int) -> Iterator[torch.Tensor]:
    """Yield what this rank puts into `net`, or tensors of another *shape*."""
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        yield torch.randn(shape or (3, 4), generator=generator)


IMAGES = (3, 2, 5, 5)


class Mixed(nn.Module):
    """Shared, frozen, scalar and half-size parameters, buffers, channels-last weights, two dtypes."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(2, 4, 3, padding=1).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(4)
        self.first = nn.Linear(4, 16)
        self.second = nn.Linear(16, 16)
        self.shared = nn.Linear(16, 16)
        self.shared.weight = self.second.weight
        self.scale = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.conv(images)).mean(dim=(2, 3))
        hidden = torch.relu(self.first(hidden))
        hidden = self.shared(torch.relu(self.second(hidden)))
        return hidden * self.scale.to(hidden.dtype) + self.frozen.sum()


class Choosing(nn.Module):
    """Layers of one weight, of which a forward pass uses those that it is told to."""

    def __init__(self, num_layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(line() for _ in range(num_layers))
        for layer in self.layers:
            nn.init.ones_(layer.weight)

    def forward(self, x: torch.Tensor, use: tuple[int, ...], again: bool | None = None) -> torch.Tensor:
        """Return what layers make of *x*; computed *again* in the backward pass, re-entrant or not."""
        for index in use:
            layer = self.layers[index]
            x = layer(x) if again is None else checkpoint(layer, x, use_reentrant=again)
        return x


def values(module: nn.Module) -> list[torch.Tensor]:
    """Return copies of parameters and buffers."""
    return [value.clone() for value in module.state_dict().values()]


def gradients(module: nn.Module) -> list[torch.Tensor | None]:
    """Return copies of the gradients that there are."""
    return [None if parameter.grad is None else parameter.grad.clone() for parameter in module.parameters()]


def numbers(module: nn.Module) -> list[float | None]:
    """Return the gradients of parameters of one element."""
    return [None if gradient is None else gradient.item() for gradient in gradients(module)]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train(
    model, rank: int, optimizers: Optimizers = sgd, shape: tuple[int, ...] = (), steps: int = 5
) -> list[torch.Tensor | None]:
    """Return the gradients of each step, and parameters and buffers at the end."""
    optimizer = optimizers(model)
    seen = []
    for step, x in enumerate(inputs(rank, steps, *shape)):
        model.zero_grad(set_to_none=step % 2 == 0)
        model(x).square().mean().backward()
        seen += gradients(model)
        optimizer.step()
    return seen + values(model)


def resolved(tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """Return what a hook returns that has nothing to wait for."""
    future = torch.futures.Future()
    future.set_result(tensor)
    return future
