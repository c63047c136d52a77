"""Gradients that DDP averages several times for one step: noticed where no optimizer uses them in between."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import LBFGS, SGD, Optimizer

from tests.collectives.virtual.clusters import mistakes

STEPS = 3


def model(outputs: int = 8) -> nn.Module:
    return DistributedDataParallel(nn.Linear(8, outputs))


def passes(passes_of_a_step: int, optimizers_of: Callable[[nn.Module], list[Optimizer]]) -> None:
    own = model()
    optimizers = optimizers_of(own)
    for _ in range(STEPS):
        for _ in range(passes_of_a_step):
            own(torch.randn(4, 8)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()


def one_optimizer(own: nn.Module) -> list[Optimizer]:
    return [SGD(own.parameters(), lr=0.1)]


def accumulated_without_no_sync() -> None:
    passes(2, one_optimizer)


def accumulated_for_two_optimizers() -> None:
    passes(2, lambda own: [SGD([parameter], lr=0.1) for parameter in own.parameters()])


def one_pass_for_each_step() -> None:
    passes(1, one_optimizer)


def generator_and_discriminator() -> None:
    generator, discriminator = model(), model(1)
    optimizers = [SGD(own.parameters(), lr=0.1) for own in (discriminator, generator)]
    for _ in range(STEPS):
        made = generator(torch.randn(4, 8))
        for inputs, optimizer in zip((made.detach(), made), optimizers, strict=True):
            optimizer.zero_grad()
            discriminator(inputs).sum().backward()
            optimizer.step()


def closures() -> None:
    own = model()
    optimizer = LBFGS(own.parameters(), max_iter=3)
    inputs = torch.randn(4, 8)

    def closure():
        optimizer.zero_grad()
        loss = own(inputs).square().sum()
        loss.backward()
        return float(loss.detach())

    for _ in range(STEPS):
        optimizer.step(closure)


WASTED = [accumulated_without_no_sync, accumulated_for_two_optimizers]
NEEDED = [one_pass_for_each_step, generator_and_discriminator, closures]


@pytest.mark.parametrize("script", [*WASTED, *NEEDED], ids=lambda script: script.__name__)
def test_reductions_are_noticed_exactly_where_a_step_needs_one_of_them(script):
    said = mistakes(lambda rank: script())

    assert ("averages gradients 2 times for each step" in said) is (script in WASTED)
    assert ("averages gradients" in said) is (script in WASTED)
