"""The rest of torch's interface, row by row of docs/ddp.md."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel.distributed import _BufferCommHookLocation, _MixedPrecision

from ddp.errors import DDPError, GradientError
from tests.ddp.rank_threads import on_ranks
from tests.distributed.pool import WorkerPool
from tests.distributed.scenario import OURS, Scenario, Scenarios, inputs, line, net, number, same

pytestmark = pytest.mark.distributed
cases = Scenarios()


def check(rank: int, world_size: int, kind: str, bad_rank: int) -> str:
    model = OURS(net(), check_gradients=kind)
    for x in inputs(rank, 2):
        model(x).sum().backward()

    def spoil(state: object, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        if rank == bad_rank:
            bucket.buffer()[0] += 1
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer().fill_(1.0) if rank != bad_rank else bucket.buffer().fill_(2.0))
        return future

    if kind == "identical":
        model.register_comm_hook(None, spoil)
    x = inputs(rank, 1)[0]
    if rank == bad_rank and kind == "finite":
        x[0, 0] = float("nan")
    with pytest.raises(GradientError) as caught:
        model(x).sum().backward()
    return str(caught.value)


def test_a_gradient_that_is_not_finite_is_told_on_every_rank_with_name_rank_and_iteration(
    pool: WorkerPool,
) -> None:
    told = pool.run(check, 3, "finite", 1)
    assert len(set(told)) == 1
    assert told[0].startswith("iteration 3: the gradient of 0.weight that rank 1 computed holds NaN")


def test_gradients_that_differ_between_ranks_are_told_on_every_rank(pool: WorkerPool) -> None:
    told = pool.run(check, 3, "identical", 2)
    assert len(set(told)) == 1
    assert told[0].startswith(
        "iteration 3: the averaged gradient of 0.weight differs between rank 0 and rank 2"
    )


def call_autograd_grad(rank: int, world_size: int) -> list[str]:
    model = OURS(net())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = inputs(rank, 1)[0].requires_grad_()
        torch.autograd.grad(model(x).sum(), x)
        model(x).sum().backward()
        told = [str(one.message) for one in caught]
        torch.autograd.grad(model(x).sum(), list(model.parameters()))
        return [*told, "then", *(str(one.message) for one in caught[len(told) :])]


def test_gradients_of_parameters_from_autograd_grad_are_warned_of(pool: WorkerPool) -> None:
    then, message = pool.run(call_autograd_grad, 1)[0]
    assert then == "then"
    assert "not averaged over the ranks; call backward()" in message


def mixed(rank: int, world_size: int, config: Any) -> tuple[bool, list[str]]:
    model = OURS(net(), mixed_precision=config)
    reference = net()
    low = copy.deepcopy(reference).bfloat16()
    x = inputs(rank, 1)[0]
    output = model(x)
    output.float().sum().backward()
    low(x.bfloat16()).float().sum().backward()
    ok = True
    reduce_dtype = config.reduce_dtype or torch.bfloat16
    for parameter, mine in zip(model.parameters(), low.parameters(), strict=True):
        total = mine.grad.to(reduce_dtype).clone()
        dist.all_reduce(total)
        ok &= torch.equal(parameter.grad, total.div_(world_size).float())
    with torch.no_grad():
        model(x)
    dtypes = {str(p.dtype) for p in model.parameters()} | {str(p.grad.dtype) for p in model.parameters()}
    return ok, [str(output.dtype), *sorted(dtypes)]


@pytest.mark.parametrize("reduce_dtype", [None, torch.float32])
def test_mixed_precision_computes_low_reduces_as_told_and_keeps_parameters_full(
    pool: WorkerPool, reduce_dtype: torch.dtype | None
) -> None:
    config = _MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=reduce_dtype)
    assert pool.run(mixed, 2, config) == [(True, ["torch.bfloat16", "torch.float32"])] * 2


@cases.add({}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True})
def an_optimizer_in_the_backward_pass_trains_as_one_behind_it_on_a_cpu_too(
    make: Any, rank: int
) -> list[torch.Tensor]:
    from torch.distributed.optim import _apply_optimizer_in_backward

    module: Any = net()
    if make.func is OURS:
        _apply_optimizer_in_backward(torch.optim.SGD, module.parameters(), {"lr": 0.05, "momentum": 0.9})
    model = make(module, bucket_cap_mb=1e-5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for x in inputs(rank, 4):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        if make.func is OURS:
            assert all(parameter.grad is None for parameter in model.parameters())
        else:
            optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count = self.count + x.sum()
        return self.layer(x)


@cases.add(given=[{"before": False}, {"before": True}])
def hooks_replace_the_broadcast_of_buffers(make: Any, rank: int, before: bool) -> float:
    model = make(Counter())

    def hook(state: object, buffers: dict[str, torch.Tensor]) -> list[Any]:
        assert list(buffers) == ["count"]
        work = dist.all_reduce(buffers["count"], async_op=True)
        if before:
            work.wait()
        return [work.get_future()]

    kind = _BufferCommHookLocation
    model._register_buffer_comm_hook(None, hook, kind.PRE_FORWARD if before else kind.POST_FORWARD)
    for _ in range(2):
        model(number(rank + 1)).sum().backward()
    return float(model.module.count.item())


def pickle_and_go_on(rank: int, world_size: int) -> tuple[bool, str]:
    models: list[Any] = [OURS(net(), bucket_cap_mb=1e-4)]
    data = inputs(rank, 3)
    models[0](data[0]).sum().backward()
    models += [pickle.loads(pickle.dumps(models[0])), copy.deepcopy(models[0])]
    file = io.BytesIO()
    torch.save(models[0], file)
    file.seek(0)
    models.append(torch.load(file, weights_only=False))
    for x in data[1:]:
        for model in models:
            model.zero_grad()
            model(x).sum().backward()
    grads = [[parameter.grad for parameter in model.parameters()] for model in models]
    group = dist.new_group([0, 1])
    with pytest.raises(RuntimeError) as caught:
        pickle.dumps(OURS(net(), process_group=group))
    return all(same(one, grads[0]) for one in grads), str(caught.value)


def test_a_model_can_be_pickled_and_copied_and_goes_on_averaging(pool: WorkerPool) -> None:
    for alike, refused in pool.run(pickle_and_go_on, 2):
        assert alike
        assert "only over the default group" in refused


@cases.add(world_size=3, oracle=False, expected=([1.0, 0.5], [1.0, 0.5], [1.0]))
def a_model_goes_on_with_the_ranks_of_another_group(make: Any, rank: int) -> list[float]:
    model = make(line())
    seen: list[float] = []
    for group in (None, dist.new_group([0, 1])):
        if group is not None:
            if rank == 2:
                return seen
            model._update_process_group(group)
        for _ in range(2):
            model.zero_grad()
            model(number(rank)).sum().backward()
        seen.append(model.module.weight.grad.item())
    return seen


def set_static(rank: int, world_size: int) -> tuple[bool, str, str]:
    model: Any = OURS(net())
    model._set_static_graph()
    for x in inputs(rank, 3):
        model(x).sum().backward()
    model._check_reducer_finalized()
    late: Any = OURS(net())
    late(inputs(rank, 1)[0]).sum().backward()
    with pytest.raises(DDPError) as caught:
        late._set_static_graph()
    handle = late.module[0].bias.register_hook(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        late(inputs(rank, 1)[0]).sum().backward()
    handle.remove()
    with pytest.raises(DDPError) as unfinished:
        late._check_reducer_finalized()
    return model.static_graph, str(caught.value), str(unfinished.value)


def test_a_graph_is_declared_static_before_training_only(pool: WorkerPool) -> None:
    static, late, unfinished = pool.run(set_static, 1)[0]
    assert static
    assert "should be called before training loop starts" in late
    assert "before the first backward pass" in late
    assert "Expected to have finished reduction in the prior iteration" in unfinished


@cases.add(expected=(0.0, 1.0))
def without_its_hooks_nothing_is_averaged(make: Any, rank: int) -> float:
    model = make(line())
    model._remove_autograd_hooks()
    model(number(rank)).sum().backward()
    return float(model.module.weight.grad.item())


@cases.add(given=[{"first": 0}, {"first": 2}])
def delayed_parameters_are_averaged_when_the_chosen_gradient_is_there(
    make: Any, rank: int, first: int
) -> list[torch.Tensor]:
    module = net()
    named = list(module.named_parameters())
    delayed = {"delay_all_reduce_named_params": named[first:], "param_to_hook_all_reduce": named[0][1]}
    model = make(module, **(delayed if make.func is OURS else {}))
    seen = []
    for step, x in enumerate(inputs(rank, 4)):
        model.zero_grad(set_to_none=step % 2 == 0)
        model(x).square().mean().backward()
        seen += [parameter.grad.clone() for parameter in model.parameters()]
    return seen


def compile_it(rank: int, world_size: int, inner: bool) -> bool:
    results = []
    for compiled in (False, True):
        module: Any = net()
        if compiled and inner:
            module = torch.compile(module, backend="aot_eager")
        model: Any = OURS(module, bucket_cap_mb=1e-4)
        run = torch.compile(model, backend="aot_eager") if compiled and not inner else model
        for x in inputs(rank, 3):
            model.zero_grad()
            run(x).sum().backward()
        results.append([parameter.grad for parameter in model.parameters()])
    return all(torch.allclose(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.costly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("inner", [True, False])
def test_compiled_modules_are_averaged(inner: bool) -> None:
    assert on_ranks(lambda rank: compile_it(rank, 2, inner)) == [True, True]


@cases.add(world_size=4, expected=(1.0, 2.0, 1.0, 2.0))
def a_mesh_of_one_dimension_names_the_ranks(make: Any, rank: int) -> float:
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = make(line(), device_mesh=mesh["dp"])
    model(number(rank)).sum().backward()
    with pytest.raises(RuntimeError, match="Only 1D device mesh is supported"):
        make(nn.Linear(1, 1), device_mesh=mesh)
    return float(model.module.weight.grad.item())


@pytest.mark.filterwarnings("ignore")
@cases.test
def test_our_ddp_does_as_torchs(pool: WorkerPool, scenario: Scenario, place: str) -> None:
    scenario.check(pool, place)


def create_graph(rank: int, world_size: int) -> list[str]:
    model = OURS(net())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for x in inputs(rank, 2):
            model(x).square().sum().backward(create_graph=True)
    return [str(one.message) for one in caught]


def test_gradients_of_gradients_are_warned_of_once(pool: WorkerPool) -> None:
    told = pool.run(create_graph, 1)[0]
    assert sum("gradients of gradients are not" in message for message in told) == 1
