"""Watching few gradients changes nothing that a user sees: stock DDP is the oracle."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import ddp
from ddp.errors import ReducerError, UnfinishedReductionError
from tests.distributed.pool import WorkerPool

pytestmark = pytest.mark.distributed

CAP_MB = 1e-4


class TwoWays(nn.Module):
    """Layers used one after the other, in the one order or in the other."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(6))

    def forward(self, x: torch.Tensor, turned: bool) -> torch.Tensor:
        for layer in reversed(self.layers) if turned else self.layers:
            x = layer(x)
        return x


def train(model: Any, rank: int, turned: list[bool], set_to_none: bool) -> list[torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, way in enumerate(turned):
        x = torch.full((2, 4), 0.1 * (rank + step))
        output = model(x, way)
        optimizer.zero_grad(set_to_none)
        if step % 3 == 2:
            with model.no_sync():
                model(x, way).sum().backward()
            output = model(x, way)
        output.sum().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def both_ways(rank: int, world_size: int, turned: list[bool], set_to_none: bool) -> tuple[bool, bool]:
    theirs = nn.parallel.DistributedDataParallel(TwoWays(), bucket_cap_mb=CAP_MB)
    ours = ddp.DistributedDataParallel(TwoWays(), bucket_cap_mb=CAP_MB)
    expected = train(theirs, rank, turned, set_to_none)
    got = train(ours, rank, turned, set_to_none)
    few = len(ours._driver.passes.watched) < len(got)
    assert all(parameter.isfinite().all() for parameter in got)
    return few, all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("turned_at", [1, 3, 100])
def test_gradients_that_change_their_order_are_averaged_as_by_torch(
    pool: WorkerPool, turned_at: int, set_to_none: bool
) -> None:
    turned = [step >= turned_at for step in range(6)]

    for few, equal in pool.run(both_ways, 2, turned, set_to_none):
        assert few == (turned_at == 100)
        assert equal


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.twice = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = checkpoint(self.first, self.second(x), use_reentrant=True)
        return checkpoint(self.first, x, use_reentrant=True) if self.twice else x


def come_twice(rank: int, world_size: int) -> tuple[str, bool]:
    model = ddp.DistributedDataParallel(Twice(), bucket_cap_mb=1e-6)
    for _ in range(3):
        model.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
    expected = copy.deepcopy([parameter.grad for parameter in model.parameters()])
    model.module.twice = True
    with pytest.raises(ReducerError) as caught:
        model(torch.ones(1, 2)).sum().backward()
    model.module.twice = False
    model.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    got = [parameter.grad for parameter in model.parameters()]
    return str(caught.value), all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_a_gradient_that_changes_after_it_was_taken_is_refused(pool: WorkerPool) -> None:
    for message, as_before in pool.run(come_twice, 2):
        assert "(first." in message
        assert "became ready twice" in message
        assert as_before


def come_twice_before_they_are_taken(rank: int, world_size: int) -> bool:
    model = ddp.DistributedDataParallel(Twice())
    for _ in range(3):
        model.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
    model.zero_grad()
    model.module.twice = True
    alone = copy.deepcopy(model.module)
    model(torch.ones(1, 2)).sum().backward()
    alone(torch.ones(1, 2)).sum().backward()
    return all(
        torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), alone.parameters(), strict=True)
    )


def test_a_gradient_that_changes_before_it_is_taken_is_averaged_whole(pool: WorkerPool) -> None:
    assert all(pool.run(come_twice_before_they_are_taken, 2))


class Some(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.ones(2) for _ in range(3))
        self.used = [0, 1, 2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index in self.used:
            x = x * self.weights[index]
        return x


def reach_no_watched_gradient(rank: int, world_size: int) -> tuple[str, list[list[float]]]:
    model = ddp.DistributedDataParallel(Some())
    for _ in range(3):
        model.zero_grad()
        model(torch.ones(2)).sum().backward()
    watched = model._driver.passes.watched
    model.zero_grad()
    model.module.used = [index for index in range(3) if index not in watched]
    assert model.module.used
    with pytest.warns(UserWarning, match="ended without a gradient for weights.0"):
        model(torch.ones(2)).sum().backward()
    with pytest.raises(UnfinishedReductionError) as caught:
        model(torch.ones(2))
    model.zero_grad()
    model.module.used = [0, 1, 2]
    model(torch.full((2,), float(rank))).sum().backward()
    return str(caught.value), [parameter.grad.tolist() for parameter in model.parameters()]


def test_a_pass_that_reaches_no_watched_gradient_is_reduced_all_the_same(pool: WorkerPool) -> None:
    for message, grads in pool.run(reach_no_watched_gradient, 2):
        assert "Parameters which did not receive grad" in message
        assert message.endswith("weights.0")
        assert grads == [[0.5, 0.5]] * 3


class Penalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.penalised = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.used * x).sum()


def penalise(rank: int, world_size: int, make: Any, after: bool) -> list[list[float]]:
    model = make(Penalised())
    for _ in range(4):
        model.zero_grad()
        penalty = (model.module.penalised**2).sum() * rank
        output = model(torch.full((3,), float(rank)))
        if after:
            penalty = (model.module.penalised**2).sum() * rank
        (output + penalty).backward()
    return [parameter.grad.tolist() for parameter in model.parameters()]


@pytest.mark.parametrize("after", [False, True])
def test_a_parameter_that_only_the_loss_uses_is_averaged_as_by_torch(pool: WorkerPool, after: bool) -> None:
    makes = (nn.parallel.DistributedDataParallel, ddp.DistributedDataParallel)
    theirs, ours = (pool.run(penalise, 2, make, after) for make in makes)

    assert theirs == ours == [[[0.5] * 3, [1.0] * 3]] * 2
