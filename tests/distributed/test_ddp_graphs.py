"""Graphs that change, leave parameters out, or compute again: what torch does, and where it gives up."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.utils.checkpoint import checkpoint

import ddp
from ddp.errors import DDPError, ReducerError, UnfinishedReductionError
from sim.cluster import Cluster
from tests.distributed.pool import WorkerPool
from tests.distributed.scenario import Scenario, Scenarios, number, same

pytestmark = pytest.mark.distributed
cases = Scenarios()
FINDS = {"find_unused_parameters": True}


class Choosing(nn.Module):
    """Uses the layers that it is told to."""

    def __init__(self, num_layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1, 1, bias=False) for _ in range(num_layers))
        for layer in self.layers:
            nn.init.ones_(layer.weight)

    def forward(self, x: torch.Tensor, use: tuple[int, ...], again: bool = False) -> torch.Tensor:
        for index in use:
            layer = self.layers[index]
            x = checkpoint(layer, x, use_reentrant=True) if again else layer(x)
        return x


class KeepsItsLoss(Choosing):
    def forward(self, *arguments: Any) -> None:  # type: ignore[override]
        self.loss = super().forward(*arguments).sum()


def grads(model: Any) -> list[float | None]:
    return [None if p.grad is None else p.grad.item() for p in model.parameters()]


@cases.add(
    FINDS,
    {**FINDS, "bucket_cap_mb": 1e-6},
    {**FINDS, "gradient_as_bucket_view": True},
    {**FINDS, "strategy": "after_backward"},
    {**FINDS, "algorithm": "ring"},
    {**FINDS, "check_gradients": "identical"},
    expected=[[1.5, 0.5, None, None], [0.5, 1.0, None, None], [None, None, None, 1.5]],
)
def parameters_that_no_rank_uses_keep_none_and_others_get_the_average(make: Any, rank: int) -> list[Any]:
    model = make(Choosing(4))
    seen = []
    for use in ((0, 1) if rank == 0 else (0,), (rank,), (3,)):
        model.zero_grad()
        model(number(rank + 1), use).sum().backward()
        seen.append(grads(model))
    return seen


@cases.add(FINDS, expected=[1.0, 0.5, None])
def what_was_used_within_no_sync_counts_as_used(make: Any, rank: int) -> list[Any]:
    model = make(Choosing())
    with model.no_sync():
        model(number(rank), (1,)).sum().backward()
    model(number(1), (0,)).sum().backward()
    return grads(model)


@cases.add(FINDS, oracle=False, expected=[0.5, 0.5, None])
def two_forward_passes_that_use_different_parts_go_into_one_backward(make: Any, rank: int) -> list[Any]:
    model = make(Choosing())
    (model(number(rank), (0,)) + model(number(rank), (1,))).sum().backward()
    return grads(model)


@cases.add(FINDS, expected=[0.5, 0.5, None], oracle=False)
@cases.add(given=[{"use": (0, 1, 2)}], expected=[0.5, 0.5, 0.5])
def a_loss_that_forward_does_not_return_is_reduced_too(
    make: Any, rank: int, use: tuple[int, ...] = (0, 1)
) -> list[Any]:
    model = make(KeepsItsLoss())
    model(number(rank), use)
    model.module.loss.backward()
    return grads(model)


@cases.add({"static_graph": True}, expected=[[1.0, 0.5, None]] * 3)
def a_static_graph_may_use_a_parameter_in_several_reentrant_checkpoints(make: Any, rank: int) -> list[Any]:
    model = make(Choosing())
    seen = []
    for _ in range(3):
        model.zero_grad()
        model(number(rank).requires_grad_(), (0, 1, 0), again=True).sum().backward()
        seen.append(grads(model))
    return seen


@cases.add({"bucket_cap_mb": 1e-6}, expected=[0.5, 0.5, 0.5], given=[{"use": (0, 1, 2)}], oracle=False)
@cases.add(FINDS, expected=[0.5, 0.5, None], oracle=False)
def reentrant_checkpoints_do_not_end_the_pass_early(
    make: Any, rank: int, use: tuple[int, ...] = (0, 1)
) -> list[Any]:
    model = make(Choosing())
    for _ in range(3):
        model.zero_grad()
        model(number(rank).requires_grad_(), use, again=True).sum().backward()
    return grads(model)


@cases.add({"find_unused_parameters": True}, {"static_graph": True}, expected=None)
def a_gradient_that_autograd_leaves_undefined_stays_none(make: Any, rank: int) -> Any:
    model = make(nn.Linear(2, 2))
    undefined: Any = torch._C._functions.UndefinedGrad()  # type: ignore[attr-defined]
    undefined(model(torch.ones(1, 2)).sum()).backward()
    return model.module.weight.grad


class Penalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.penalised = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.used * x).sum()


@cases.add(given=[{"after": False}, {"after": True}], expected=[[0.5] * 3, [1.0] * 3])
def a_parameter_that_only_the_loss_uses_is_averaged(make: Any, rank: int, after: bool) -> list[Any]:
    model = make(Penalised())
    for _ in range(4):
        model.zero_grad()
        penalty = (model.module.penalised**2).sum() * rank
        output = model(torch.full((3,), float(rank)))
        if after:
            penalty = (model.module.penalised**2).sum() * rank
        (output + penalty).backward()
    return [parameter.grad.tolist() for parameter in model.parameters()]


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


@cases.add(
    {"bucket_cap_mb": 1e-4},
    given=[{"turned_at": step, "set_to_none": to_none} for step in (1, 3, 100) for to_none in (True, False)],
)
def gradients_that_change_their_order_are_averaged(
    make: Any, rank: int, turned_at: int, set_to_none: bool
) -> list[torch.Tensor]:
    model = make(TwoWays())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        way = step >= turned_at
        x = torch.full((2, 4), 0.1 * (rank + step))
        output = model(x, way)
        optimizer.zero_grad(set_to_none)
        if step % 3 == 2:
            with model.no_sync():
                model(x, way).sum().backward()
            output = model(x, way)
        output.sum().backward()
        optimizer.step()
    parameters = [parameter.detach() for parameter in model.parameters()]
    if isinstance(model, ddp.DistributedDataParallel) and Cluster.current() is None:
        assert (len(model._driver.passes.watched) < len(parameters)) == (turned_at == 100)
    assert all(parameter.isfinite().all() for parameter in parameters)
    return parameters


class WithBuffer(nn.Module):
    """Integer weights, a buffer that each forward pass changes, and a layer that may be unused."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.sometimes = (nn.Linear(2, 2, bias=False) for _ in range(3))
        self.register_buffer("count", torch.zeros(1))
        for layer in (self.first, self.second, self.sometimes):
            nn.init.ones_(layer.weight)

    def forward(self, x: torch.Tensor, whole: bool) -> torch.Tensor:
        self.count += x.sum()
        hidden: torch.Tensor = self.second(self.first(x))
        return self.sometimes(hidden) if whole else hidden


def same_after_join(ours: list[Any], theirs: list[Any]) -> bool:
    """Torch gives zeros where no active rank used a parameter that one has used which has joined."""
    return len(ours) == len(theirs) and all(
        not (theirs is not None and theirs.any()) if ours is None else same(ours, theirs)
        for ours, theirs in zip(ours, theirs, strict=True)
    )


@cases.add({}, given=[{}, {"divides": False}, {"hooked": True}], world_size=3, alike=same_after_join)
@cases.add(FINDS, {"algorithm": "ring", "gradient_as_bucket_view": True}, world_size=3, alike=same_after_join)
def uneven_inputs_are_averaged(make: Any, rank: int, divides: bool = True, hooked: bool = False) -> list[Any]:
    model = make(WithBuffer(), bucket_cap_mb=1e-5)
    if hooked:
        model.register_comm_hook(None, default_hooks.allreduce_hook)
    find = make.keywords.get("find_unused_parameters", False)
    seen: list[Any] = []
    with model.join(divide_by_initial_world_size=divides):
        for step in range(2 + rank):
            model.zero_grad()
            if step == 1:
                with model.no_sync():
                    model(torch.ones(1, 2), not find).sum().backward()
            x = torch.full((1, 2), 18.0 * (rank + 1))
            model(x, step % 2 == 0 or not find).sum().backward()
            seen += [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    return seen + [tensor.clone() for tensor in model.state_dict().values()]


@cases.add(oracle=False, expected=0.5)
def after_join_all_ranks_count_again(make: Any, rank: int) -> float:
    model = make(nn.Linear(1, 1, bias=False))
    with model.join(divide_by_initial_world_size=False):
        for _ in range(1 + rank):
            model(number(1)).sum().backward()
    model.zero_grad()
    model(number(rank)).sum().backward()
    return float(model.module.weight.grad.item())


@cases.add(given=[{"skips": False}], world_size=1, expected=4, oracle=False)
@cases.add(
    {"skip_all_reduce_unused_params": True}, given=[{"skips": True}], world_size=1, expected=2, oracle=False
)
def buckets_of_unused_parameters_are_skipped_if_asked_for(make: Any, rank: int, skips: bool) -> int:
    buckets = []

    def hook(state: object, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        buckets.append(bucket.index())
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    model = make(Choosing(4), find_unused_parameters=True, bucket_cap_mb=1e-6)
    model.register_comm_hook(None, hook)
    model(number(1), (1, 2)).sum().backward()
    assert grads(model) == [None, 1.0, 1.0, None]
    return len(buckets)


@pytest.mark.filterwarnings("ignore")
@cases.test
def test_our_ddp_does_as_torchs(pool: WorkerPool, scenario: Scenario, place: str) -> None:
    scenario.check(pool, place)


def end_early(rank: int, world_size: int) -> str:
    model: Any = ddp.DistributedDataParallel(nn.Linear(1, 1))

    def train_until_somebody_ends() -> None:
        with model.join(throw_on_early_termination=True):
            for _ in range(1 + rank):
                model(number(1)).sum().backward()

    with pytest.raises(RuntimeError) as caught:
        train_until_somebody_ends()
    return str(caught.value)


def test_all_ranks_raise_when_one_has_no_more_inputs_if_asked_to(pool: WorkerPool) -> None:
    joined, active = pool.run(end_early, 2)

    assert "Rank 0 exhausted all inputs" in joined
    assert "Detected at least one rank that exhausted inputs" in active


def change_the_graph(rank: int, world_size: int, second: tuple[int, ...]) -> str:
    model = ddp.DistributedDataParallel(Choosing(2), static_graph=True)
    model(number(1), (0,)).sum().backward()
    loss = model(number(1), second).sum()
    with pytest.raises(DDPError) as caught, warnings.catch_warnings(action="ignore"):
        loss.backward()
    with pytest.raises(UnfinishedReductionError, match="Parameter indices which did not receive grad"):
        model(number(1), (0,))
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


def come_twice(rank: int, world_size: int) -> tuple[str, bool]:
    model = ddp.DistributedDataParallel(Choosing(2), bucket_cap_mb=1e-6)

    def train(use: tuple[int, ...]) -> list[float | None]:
        model.zero_grad()
        model(number(1).requires_grad_(), use, again=True).sum().backward()
        return grads(model)

    for _ in range(3):
        expected = train((1, 0))
    with pytest.raises(ReducerError) as caught:
        train((1, 0, 0))
    return str(caught.value), train((1, 0)) == expected


def test_a_gradient_that_changes_after_it_was_taken_is_refused(pool: WorkerPool) -> None:
    for message, as_before in pool.run(come_twice, 2):
        assert "(layers.0.weight)" in message
        assert "became ready twice" in message
        assert as_before


def come_twice_before_they_are_taken(rank: int, world_size: int) -> bool:
    model = ddp.DistributedDataParallel(Choosing(2))
    for _ in range(3):
        model.zero_grad()
        model(number(1).requires_grad_(), (1, 0), again=True).sum().backward()
    model.zero_grad()
    alone = copy.deepcopy(model.module)
    for one in (model, alone):
        one(number(1).requires_grad_(), (1, 0, 0), again=True).sum().backward()
    return grads(model) == grads(alone)


def test_a_gradient_that_changes_before_it_is_taken_is_averaged_whole(pool: WorkerPool) -> None:
    assert all(pool.run(come_twice_before_they_are_taken, 2))


def reach_no_watched_gradient(rank: int, world_size: int) -> tuple[str, list[float | None]]:
    model = ddp.DistributedDataParallel(Choosing())
    everything = (0, 1, 2)
    for _ in range(3):
        model.zero_grad()
        model(number(1), everything).sum().backward()
    unwatched = tuple(index for index in everything if index not in model._driver.passes.watched)
    assert unwatched
    model.zero_grad()
    with pytest.warns(UserWarning, match="ended without a gradient for layers.0.weight"):
        model(number(1), unwatched).sum().backward()
    with pytest.raises(UnfinishedReductionError) as caught:
        model(number(1), everything)
    model.zero_grad()
    model(number(rank), everything).sum().backward()
    return str(caught.value), grads(model)


def test_a_pass_that_reaches_no_watched_gradient_is_reduced_all_the_same(pool: WorkerPool) -> None:
    for message, averages in pool.run(reach_no_watched_gradient, 2):
        assert "Parameters which did not receive grad" in message
        assert message.endswith("layers.0.weight")
        assert averages == [0.5, 0.5, 0.5]
