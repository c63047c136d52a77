"""Gradients that DDP averages several times for one step: noticed where no optimizer uses them in between."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import LBFGS, SGD

from tests.collectives.virtual.clusters import in_group

STEPS = 3


def model(outputs: int = 8) -> nn.Module:
    return DistributedDataParallel(nn.Linear(8, outputs))


def accumulated_without_no_sync() -> None:
    own = model()
    optimizer = SGD(own.parameters(), lr=0.1)
    for _ in range(STEPS):
        for _ in range(2):
            own(torch.randn(4, 8)).sum().backward()
        optimizer.step()


def accumulated_for_two_optimizers() -> None:
    own = model()
    optimizers = [SGD([parameter], lr=0.1) for parameter in own.parameters()]
    for _ in range(STEPS):
        for _ in range(2):
            own(torch.randn(4, 8)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()


def one_pass_for_each_step() -> None:
    own = model()
    optimizer = SGD(own.parameters(), lr=0.1)
    for _ in range(STEPS):
        own(torch.randn(4, 8)).sum().backward()
        optimizer.step()


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
    said = "\n".join(in_group(lambda rank: script(), 2).report.mistakes)

    assert ("averages gradients 2 times for each step" in said) is (script in WASTED)
    assert ("averages gradients" in said) is (script in WASTED)
