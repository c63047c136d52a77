"""Unused parameters and static graphs: what torch does, and where torch gives up."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import ddp
from ddp.errors import DDPError, UnfinishedReductionError
from tests.distributed.pool import WorkerPool

pytestmark = pytest.mark.distributed


class Choosing(nn.Module):
    """Uses the layers that it is told to."""

    def __init__(self, num_layers: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1, 1, bias=False) for _ in range(num_layers))
        for layer in self.layers:
            nn.init.ones_(layer.weight)

    def forward(self, x: torch.Tensor, use: tuple[int, ...], again: bool = False) -> torch.Tensor:
        for index in use:
            layer = self.layers[index]
            x = checkpoint(layer, x, use_reentrant=True) if again else layer(x)
        return x


def grads(model: Any) -> list[float | None]:
    return [None if p.grad is None else p.grad.item() for p in model.parameters()]


def use_some(rank: int, world_size: int, options: dict[str, Any]) -> list[Any]:
    model = ddp.DistributedDataParallel(Choosing(), find_unused_parameters=True, **options)
    seen = []
    for use in ((0, 1) if rank == 0 else (0,), (rank,), (3,)):
        model.zero_grad()
        model(torch.full((1, 1), rank + 1.0), use).sum().backward()
        seen.append(grads(model))
    return seen


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bucket_cap_mb": 1e-6},
        {"gradient_as_bucket_view": True},
        {"strategy": "after_backward"},
        {"algorithm": "ring"},
        {"check_gradients": "identical"},
    ],
    ids=str,
)
def test_parameters_that_no_rank_uses_keep_none_and_others_get_the_average(
    pool: WorkerPool, options: dict[str, Any]
) -> None:
    expected = [[1.5, 0.5, None, None], [0.5, 1.0, None, None], [None, None, None, 1.5]]
    assert pool.run(use_some, 2, options) == [expected, expected]


def accumulate_what_is_used_once(rank: int, world_size: int) -> list[float | None]:
    model = ddp.DistributedDataParallel(Choosing(3), find_unused_parameters=True)
    with model.no_sync():
        model(torch.full((1, 1), float(rank)), (1,)).sum().backward()
    model(torch.ones(1, 1), (0,)).sum().backward()
    return grads(model)


def test_what_was_used_within_no_sync_counts_as_used(pool: WorkerPool) -> None:
    assert pool.run(accumulate_what_is_used_once, 2) == [[1.0, 0.5, None]] * 2


def two_forwards_of_different_parts(rank: int, world_size: int) -> list[float | None]:
    model = ddp.DistributedDataParallel(Choosing(3), find_unused_parameters=True)
    x = torch.full((1, 1), float(rank))
    (model(x, (0,)) + model(x, (1,))).sum().backward()
    return grads(model)


def test_two_forward_passes_that_use_different_parts_go_into_one_backward(pool: WorkerPool) -> None:
    assert pool.run(two_forwards_of_different_parts, 2) == [[0.5, 0.5, None]] * 2


class KeepsItsLoss(Choosing):
    def forward(self, *args: Any) -> None:
        self.loss = super().forward(*args).sum()


def keep_the_loss(rank: int, world_size: int) -> list[float | None]:
    model = ddp.DistributedDataParallel(KeepsItsLoss(3), find_unused_parameters=True)
    model(torch.full((1, 1), float(rank)), (0, 1))
    model.module.loss.backward()
    return grads(model)


def test_unused_parameters_are_found_for_a_loss_that_is_not_returned(pool: WorkerPool) -> None:
    assert pool.run(keep_the_loss, 2) == [[0.5, 0.5, None]] * 2


def checkpointed_parts(rank: int, world_size: int, options: dict[str, Any]) -> list[Any]:
    model = ddp.DistributedDataParallel(Choosing(3), **options)
    seen = []
    for _ in range(3):
        model.zero_grad()
        x = torch.full((1, 1), float(rank), requires_grad=True)
        model(x, (0, 1, 0), again=True).sum().backward()
        seen.append(grads(model))
    return seen


def test_a_static_graph_may_use_a_parameter_in_several_reentrant_checkpoints(pool: WorkerPool) -> None:
    assert pool.run(checkpointed_parts, 2, {"static_graph": True}) == [[[1.0, 0.5, None]] * 3] * 2


def unused_inside_a_checkpoint(rank: int, world_size: int) -> list[float | None]:
    model = ddp.DistributedDataParallel(Choosing(3), find_unused_parameters=True)
    model(torch.full((1, 1), float(rank), requires_grad=True), (0, 1), again=True).sum().backward()
    return grads(model)


def test_unused_parameters_are_found_beside_reentrant_checkpoints(pool: WorkerPool) -> None:
    assert pool.run(unused_inside_a_checkpoint, 2) == [[0.5, 0.5, None]] * 2


def change_the_graph(rank: int, world_size: int, second: tuple[int, ...]) -> str:
    model = ddp.DistributedDataParallel(Choosing(2), static_graph=True)
    model(torch.ones(1, 1), (0,)).sum().backward()
    loss = model(torch.ones(1, 1), second).sum()
    with pytest.raises(DDPError) as caught, warnings.catch_warnings(action="ignore"):
        loss.backward()
    with pytest.raises(UnfinishedReductionError, match="Parameter indices which did not receive grad"):
        model(torch.ones(1, 1), (0,))
    return str(caught.value)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ((0, 1), "layers.1.weight got a gradient more often than in the first pass"),
        ((1,), "Your training graph has changed in this iteration"),
    ],
    ids=str,
)
def test_a_static_graph_that_changes_is_told_with_the_parameters_name(
    pool: WorkerPool, second: tuple[int, ...], message: str
) -> None:
    for told in pool.run(change_the_graph, 2, second):
        assert message in told


class Counting:
    """A hook that counts the buckets which are reduced."""

    def __init__(self) -> None:
        self.count = 0

    def hook(self, state: object, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        self.count += 1
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future


def skip_buckets(rank: int, world_size: int, skip: bool) -> int:
    model = ddp.DistributedDataParallel(
        Choosing(4), find_unused_parameters=True, skip_all_reduce_unused_params=skip, bucket_cap_mb=1e-6
    )
    counting = Counting()
    model.register_comm_hook(None, counting.hook)
    model(torch.ones(1, 1), (1, 2)).sum().backward()
    assert grads(model) == [None, 1.0, 1.0, None]
    return counting.count


def test_buckets_of_unused_parameters_are_skipped_if_asked_for(pool: WorkerPool) -> None:
    assert pool.run(skip_buckets, 1, False) == [4]
    assert pool.run(skip_buckets, 1, True) == [2]


def buckets(rank: int, world_size: int, options: dict[str, Any]) -> list[Any]:
    seen = []
    for make in (nn.parallel.DistributedDataParallel, ddp.DistributedDataParallel):
        module = nn.Sequential(*(nn.Linear(300, 300) for _ in range(6)), nn.Embedding(9, 300, sparse=True))
        model: Any = make(module, **options)
        for _ in range(4):
            layers = list(model.module)
            model.module.forward = lambda x, layers=layers: (
                sum(layers[-1](x)) + sum(layer(torch.ones(300)).sum() for layer in layers[:-1])
            )
            model(torch.tensor([1])).sum().backward()
        data = model._get_ddp_logging_data()
        seen.append([data.get("bucket_sizes"), data.get("rebuilt_bucket_sizes") or None])
    return seen


@pytest.mark.parametrize(
    "options",
    [
        {"bucket_cap_mb": 0.5},
        {"bucket_cap_mb_list": [0.2, 0.5, 1.0]},
        {"find_unused_parameters": True, "bucket_cap_mb": 0.5},
        {"find_unused_parameters": True},
        {"static_graph": True},
    ],
    ids=str,
)
def test_first_and_rebuilt_buckets_are_torchs(pool: WorkerPool, options: dict[str, Any]) -> None:
    theirs, ours = pool.run(buckets, 1, options)[0]
    assert ours == theirs
