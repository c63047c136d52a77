"""Mistakes of users: told on every rank, by name, without spoiling the calls that follow."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import ddp
from collectives.errors import CollectiveTimeoutError
from ddp.errors import DDPError, ModelMismatchError, NotSupportedError, UnfinishedReductionError
from tests.distributed.pool import WorkerPool

pytestmark = pytest.mark.distributed


def gradients(module: nn.Module) -> list[float]:
    return [parameter.grad.item() for parameter in module.parameters()]


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(1, 1), nn.Linear(1, 1)
        self.skip = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x) if self.skip else self.used(x) + self.unused(x)


def wrap_different_modules(rank: int, world_size: int, kind: str) -> str:
    widths = {"shape": [2, 3 + rank], "count": [2] * (2 + rank), "dtype": [2, 3]}[kind]
    module = nn.ParameterDict({f"p{i}": nn.Parameter(torch.zeros(width)) for i, width in enumerate(widths)})
    if kind == "dtype" and rank == 1:
        module.double()
    with pytest.raises(ModelMismatchError) as caught:
        ddp.DistributedDataParallel(module)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("shape", "has parameter p1 of float32[3], strides [1], rank 1 has parameter p1 of float32[4]"),
        ("count", "rank 0 has option bucket_cap_mb=None, rank 1 has parameter p2 of float32[2]"),
        ("dtype", "has parameter p0 of float32[2], strides [1], rank 1 has parameter p0 of float64[2]"),
    ],
)
def test_ranks_that_wrap_different_modules_all_learn_which_parameter_differs(
    pool: WorkerPool, kind: str, message: str
) -> None:
    for told in pool.run(wrap_different_modules, 2, kind):
        assert message in told


def skip_a_parameter(rank: int, world_size: int, by_step: bool) -> tuple[str, list[float]]:
    model = ddp.DistributedDataParallel(TwoLayers())
    optimizer, other = (torch.optim.SGD(own.parameters(), lr=0.1) for own in (model, TwoLayers()))
    with pytest.warns(UserWarning, match="without a gradient for unused.weight, unused.bias"):
        model(torch.ones(1, 1)).sum().backward()
    other.step()
    with torch.no_grad():
        model(torch.ones(1, 1))
    with pytest.raises(UnfinishedReductionError) as caught:
        optimizer.step() if by_step else model(torch.ones(1, 1))
    model.zero_grad()
    model.module.skip = False
    model(torch.full((1, 1), float(rank))).sum().backward()
    return str(caught.value), gradients(model)


@pytest.mark.parametrize("by_step", [False, True], ids=["forward", "step"])
def test_an_unused_parameter_is_named_before_gradients_are_used_and_the_next_step_works(
    pool: WorkerPool, by_step: bool
) -> None:
    for rank, (message, grads) in enumerate(pool.run(skip_a_parameter, 2, by_step)):
        assert message.startswith(
            "Expected to have finished reduction in the prior iteration before starting"
        )
        assert "passing the keyword argument `find_unused_parameters=True`" in message
        assert f"which did not receive grad for rank {rank}: 2 3\n" in message
        assert message.endswith(f"which did not receive grad for rank {rank}: unused.weight, unused.bias")
        assert grads == [0.5, 1.0, 0.5, 1.0]


def fail_in_backward(rank: int, world_size: int) -> list[float]:
    model = ddp.DistributedDataParallel(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)), bucket_cap_mb=1e-6)
    seen = []
    for step in range(4):
        model.zero_grad()
        output = model(torch.full((1, 1), float(rank)))
        if step == 2:
            handle = model.module[0].bias.register_hook(lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                output.sum().backward()
            handle.remove()
        else:
            output.sum().backward()
            seen.append(model.module[1].bias.grad.item())
    return seen


def test_a_pass_that_an_exception_ended_does_not_spoil_the_next(pool: WorkerPool) -> None:
    assert pool.run(fail_in_backward, 2) == [[1.0, 1.0, 1.0]] * 2


def fail_and_then_accumulate(rank: int, world_size: int) -> list[float]:
    model = ddp.DistributedDataParallel(TwoLayers())
    with pytest.warns(UserWarning, match="without a gradient"):
        model(torch.ones(1, 1)).backward()
    with pytest.raises(UnfinishedReductionError):
        model(torch.ones(1, 1))
    model.zero_grad()
    model.module.skip = False
    with model.no_sync():
        model(torch.full((1, 1), float(rank))).backward()
    alone = model.module.used.weight.grad.item()
    model(torch.full((1, 1), 10.0 * rank)).backward()
    return [alone, model.module.used.weight.grad.item()]


def test_after_a_pass_that_failed_no_sync_still_accumulates_locally(pool: WorkerPool) -> None:
    assert pool.run(fail_and_then_accumulate, 2) == [[0.0, 5.5], [1.0, 5.5]]


class DeclaredDense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 2))

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return nn.functional.embedding(index, self.weight, sparse=True)


class DeclaredSparse(nn.Embedding):
    def __init__(self) -> None:
        super().__init__(4, 2, sparse=True)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.weight[index]


def gradient_of_another_layout(rank: int, world_size: int, module: nn.Module) -> str:
    model = ddp.DistributedDataParallel(module)
    with pytest.raises(NotSupportedError) as caught:
        model(torch.tensor([1])).sum().backward()
    return str(caught.value)


def test_a_gradient_that_is_not_of_the_declared_layout_is_refused_by_name(pool: WorkerPool) -> None:
    told = pool.run(gradient_of_another_layout, 1, DeclaredDense())[0]
    assert told.startswith("the gradient of weight is sparse, and its layer is no nn.Embedding")
    told = pool.run(gradient_of_another_layout, 1, DeclaredSparse())[0]
    assert told.startswith("the gradient of weight is dense, but its layer has sparse=True")


def refusal(rank: int, world_size: int, module: nn.Module | None, options: dict[str, Any]) -> str:
    with pytest.raises((DDPError, ValueError)) as caught:
        ddp.DistributedDataParallel(module or nn.Linear(1, 1), **options)
    return str(caught.value)


REFUSED: list[tuple[nn.Module | None, dict[str, Any], str]] = [
    (None, {"bucket_cap_mb_list": [1, 0]}, "bucket_cap_mb_list must"),
    (None, {"param_to_hook_all_reduce": nn.Parameter(torch.ones(1))}, "belong together; give both or none"),
    (None, {"check_gradients": "nan"}, "must be None or one of finite, identical, got 'nan'"),
    (None, {"device_ids": [0]}, "device_ids must be None"),
    (None, {"output_device": 0}, "output_device needs device_ids"),
    (None, {"bucket_cap_mb": 0}, "bucket_cap_mb must be a positive number"),
    (None, {"strategy": "accumulate:k=2", "static_graph": True}, "static_graph needs gradients that are"),
    (None, {"strategy": "waitfree"}, "did you mean 'wait_free'"),
    (nn.Linear(1, 1).requires_grad_(False), {}, "doesn't have any parameter that requires a gradient"),
    (nn.Sequential(nn.LazyLinear(1)), {}, "parameter 0.weight has no shape yet"),
    (nn.Sequential(nn.SyncBatchNorm(2)), {}, "SyncBatchNorm layers only work with GPU modules: 0 is a"),
]


def all_refusals(rank: int, world_size: int) -> list[str]:
    return [refusal(rank, world_size, module, options) for module, options, _ in REFUSED]


def test_a_module_or_an_argument_that_is_not_supported_is_refused_by_name(pool: WorkerPool) -> None:
    for told, (_, _, message) in zip(pool.run(all_refusals, 1)[0], REFUSED, strict=True):
        assert message in told


def skip_a_backward(rank: int, world_size: int, algorithm: str) -> str | None:
    store = dist.distributed_c10d._get_default_store()
    dist.barrier()  # so that nobody is late when it is made
    model = ddp.DistributedDataParallel(nn.Linear(1, 1), algorithm=algorithm, timeout=2.0)
    output = model(torch.ones(1, 1))
    if rank == 1:
        store.wait(["rank 0 knows"], timedelta(seconds=45))
        return None
    with pytest.raises(CollectiveTimeoutError) as caught:
        output.sum().backward()
    store.set("rank 0 knows", "")
    return str(caught.value)


@pytest.mark.parametrize("algorithm", ["native", "ring"])
def test_a_rank_that_skips_its_backward_is_named_after_the_time_out(pool: WorkerPool, algorithm: str) -> None:
    waited, _ = pool.run_outcomes(skip_a_backward, 2, algorithm)

    assert "rank 1" in waited
