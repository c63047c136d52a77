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

import ddp
from ddp.autograd.observation.iteration_times import IterationTimes
from ddp.errors import DDPError, GradientError
from tests.distributed.pool import WorkerPool

pytestmark = pytest.mark.distributed

MAKE = (nn.parallel.DistributedDataParallel, ddp.DistributedDataParallel)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def inputs(rank: int, steps: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(3, 4, generator=generator) for _ in range(steps)]


def values(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def check(rank: int, world_size: int, kind: str, bad_rank: int) -> str:
    model = ddp.DistributedDataParallel(net(), check_gradients=kind)
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
    model = ddp.DistributedDataParallel(net())
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
    model = ddp.DistributedDataParallel(net(), mixed_precision=config)
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


def optimize_in_backward(rank: int, world_size: int, options: dict[str, Any]) -> bool:
    from torch.distributed.optim import _apply_optimizer_in_backward

    inside: Any = net()
    _apply_optimizer_in_backward(torch.optim.SGD, inside.parameters(), {"lr": 0.05, "momentum": 0.9})
    inside = ddp.DistributedDataParallel(inside, bucket_cap_mb=1e-5, **options)
    outside = nn.parallel.DistributedDataParallel(net())
    optimizer = torch.optim.SGD(outside.parameters(), lr=0.05, momentum=0.9)
    for x in inputs(rank, 4):
        inside(x).square().mean().backward()
        assert all(parameter.grad is None for parameter in inside.parameters())
        optimizer.zero_grad()
        outside(x).square().mean().backward()
        optimizer.step()
    return equal(values(inside), values(outside))


@pytest.mark.parametrize(
    "options", [{}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True}], ids=str
)
def test_an_optimizer_in_the_backward_pass_trains_as_one_behind_it_on_a_cpu_too(
    pool: WorkerPool, options: dict[str, Any]
) -> None:
    assert pool.run(optimize_in_backward, 2, options) == [True, True]


def log(rank: int, world_size: int, backend: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    group = dist.new_group(backend=backend)
    logged = []
    for make in MAKE:
        net64 = nn.Sequential(net(), nn.Linear(2, 2).double())
        net64.forward = lambda x, net64=net64: net64[1](net64[0](x).double())  # type: ignore[method-assign]
        model: Any = make(net64, bucket_cap_mb=1e-4, process_group=group, **options)
        model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
        model._set_ddp_runtime_logging_sample_rate(2)
        with model.join():
            for x in inputs(rank, 14):
                model(x).sum().backward()
        logged.append(model._get_ddp_logging_data())
    return logged


@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}], ids=str)
def test_logging_data_have_torchs_keys_and_but_for_times_its_values(
    pool: WorkerPool, options: dict[str, Any]
) -> None:
    for rank, (theirs, ours) in enumerate(pool.run(log, 2, "gloo", options)):
        assert theirs.keys() - ours.keys() == set()
        assert ours.keys() - theirs.keys() == {"static_graph"}
        differing = {key for key in theirs if theirs[key] != ours[key] and "_time" not in key}
        assert differing == set()
        assert ours["rank"] == rank
        assert (theirs["iteration"], ours["iteration"]) == (12, 12)
        assert ours["gloo_num_threads"] == 2
        assert all(ours[key] > 0 for key in ours if key.startswith("avg_backward_comm"))


def test_logging_data_over_our_backend_have_torchs_keys(pool: WorkerPool) -> None:
    for theirs, ours in pool.run(log_one_pass, 2):
        assert theirs.keys() - ours.keys() == set()
        assert "gloo_num_threads" not in ours


def log_one_pass(rank: int, world_size: int) -> list[dict[str, Any]]:
    group = dist.new_group(backend="testbed")
    models: list[Any] = [make(net(), process_group=group) for make in MAKE]
    for model in models:
        for x in inputs(rank, 2):
            model(x).sum().backward()
    return [model._get_ddp_logging_data() for model in models]


def test_times_are_those_of_the_latest_iteration_that_was_looked_at_and_over_at_a_forward_pass() -> None:
    clock = iter(range(0, 10**9, 1000))
    times = IterationTimes(lambda: next(clock))
    times.rate = 4
    iterations, lengths = [], []
    for _ in range(14):
        times.begin()
        iterations.append(times.rows()["iteration"])
        for stamp in ("backward_began", "first_launch", "last_gradient", "last_reduced"):
            times.last(stamp)
        rows = times.rows()
        lengths.append((rows["iteration"], rows["backward_comm_time"], rows["avg_backward_comm_time"]))
    assert iterations == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 12, 12]
    expected = [(number, 2, 2) for number in iterations]
    assert lengths == [(0, 0, 0), *expected[1:]]


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count = self.count + x.sum()
        return self.layer(x)


def sum_buffers(rank: int, world_size: int, before: bool) -> list[float]:
    seen = []
    for make in MAKE:
        model: Any = make(Counter())

        def hook(state: object, buffers: dict[str, torch.Tensor]) -> list[Any]:
            assert list(buffers) == ["count"]
            work = dist.all_reduce(buffers["count"], async_op=True)
            if before:
                work.wait()
            return [work.get_future()]

        kind = _BufferCommHookLocation
        model._register_buffer_comm_hook(None, hook, kind.PRE_FORWARD if before else kind.POST_FORWARD)
        for _ in range(2):
            model(torch.full((1, 1), rank + 1.0)).sum().backward()
        seen.append(model.module.count.item())
    return seen


@pytest.mark.parametrize("before", [False, True])
def test_hooks_replace_the_broadcast_of_buffers_as_with_torch(pool: WorkerPool, before: bool) -> None:
    for theirs, ours in pool.run(sum_buffers, 2, before):
        assert ours == theirs


def pickle_and_go_on(rank: int, world_size: int) -> tuple[bool, str]:
    models: list[Any] = [ddp.DistributedDataParallel(net(), bucket_cap_mb=1e-4)]
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
        pickle.dumps(ddp.DistributedDataParallel(net(), process_group=group))
    return all(equal(one, grads[0]) for one in grads), str(caught.value)


def test_a_model_can_be_pickled_and_copied_and_goes_on_averaging(pool: WorkerPool) -> None:
    for same, refused in pool.run(pickle_and_go_on, 2):
        assert same
        assert "only over the default group" in refused


def change_the_group(rank: int, world_size: int) -> list[float]:
    model: Any = ddp.DistributedDataParallel(nn.Linear(1, 1, bias=False))
    seen = []
    groups = [None, dist.new_group([0, 1])]
    for group in groups:
        if group is not None:
            if rank == 2:
                return seen
            model._update_process_group(group)
        for _ in range(2):
            model.zero_grad()
            model(torch.full((1, 1), float(rank))).sum().backward()
        seen.append(model.module.weight.grad.item())
    return seen


def test_a_model_goes_on_with_the_ranks_of_another_group(pool: WorkerPool) -> None:
    assert pool.run(change_the_group, 3) == [[1.0, 0.5], [1.0, 0.5], [1.0]]


def set_static(rank: int, world_size: int) -> tuple[bool, str, str]:
    model: Any = ddp.DistributedDataParallel(net())
    model._set_static_graph()
    for x in inputs(rank, 3):
        model(x).sum().backward()
    model._check_reducer_finalized()
    late: Any = ddp.DistributedDataParallel(net())
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


def remove_hooks(rank: int, world_size: int) -> float:
    model: Any = ddp.DistributedDataParallel(nn.Linear(1, 1, bias=False))
    model._remove_autograd_hooks()
    model(torch.full((1, 1), float(rank))).sum().backward()
    return model.module.weight.grad.item()


def test_without_its_hooks_nothing_is_averaged(pool: WorkerPool) -> None:
    assert pool.run(remove_hooks, 2) == [0.0, 1.0]


def delay(rank: int, world_size: int, all_of_them: bool) -> bool:
    module = net()
    named = list(module.named_parameters())
    delayed = named if all_of_them else named[2:]
    model: Any = ddp.DistributedDataParallel(
        module, delay_all_reduce_named_params=delayed, param_to_hook_all_reduce=named[0][1]
    )
    reference = nn.parallel.DistributedDataParallel(net())
    same = True
    for step, x in enumerate(inputs(rank, 4)):
        for one in (model, reference):
            one.zero_grad(set_to_none=step % 2 == 0)
            one(x).square().mean().backward()
        pairs = zip(model.parameters(), reference.parameters(), strict=True)
        same &= all(torch.equal(a.grad, b.grad) for a, b in pairs)
    return same


@pytest.mark.parametrize("all_of_them", [False, True])
def test_delayed_parameters_are_averaged_when_the_chosen_gradient_is_there(
    pool: WorkerPool, all_of_them: bool
) -> None:
    assert pool.run(delay, 2, all_of_them) == [True, True]


def compile_it(rank: int, world_size: int, inner: bool) -> bool:
    results = []
    for compiled in (False, True):
        module: Any = net()
        if compiled and inner:
            module = torch.compile(module, backend="aot_eager")
        model: Any = ddp.DistributedDataParallel(module, bucket_cap_mb=1e-4)
        run = torch.compile(model, backend="aot_eager") if compiled and not inner else model
        for x in inputs(rank, 3):
            model.zero_grad()
            run(x).sum().backward()
        results.append([parameter.grad for parameter in model.parameters()])
    return all(torch.allclose(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.costly
@pytest.mark.parametrize("inner", [True, False])
def test_compiled_modules_are_averaged(pool: WorkerPool, inner: bool) -> None:
    assert pool.run(compile_it, 2, inner, timeout=100.0) == [True, True]


def use_a_mesh(rank: int, world_size: int) -> tuple[float, str]:
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model: Any = ddp.DistributedDataParallel(nn.Linear(1, 1, bias=False), device_mesh=mesh["dp"])
    model(torch.full((1, 1), float(rank))).sum().backward()
    with pytest.raises(RuntimeError) as caught:
        ddp.DistributedDataParallel(nn.Linear(1, 1), device_mesh=mesh)
    return model.module.weight.grad.item(), str(caught.value)


def test_a_mesh_of_one_dimension_names_the_ranks(pool: WorkerPool) -> None:
    results = pool.run(use_a_mesh, 4)
    assert [grad for grad, _ in results] == [1.0, 2.0, 1.0, 2.0]
    assert "Only 1D device mesh is supported" in results[0][1]


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(1, 1, bias=False)
        self.second = nn.Linear(1, 1, bias=False)
        self.second.weight = self.first.weight
        self.own = nn.Linear(1, 1, bias=False)


def list_parameters(rank: int, world_size: int) -> list[int]:
    counts = []
    for ignored in ([], ["first.weight"], ["own.weight"]):
        module = Shared()
        ddp.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, ignored)
        for make in MAKE:
            model: Any = make(module)
            counts.append(model._get_ddp_logging_data()["num_parameter_tensors"])
    return counts


def test_shared_and_ignored_parameters_count_as_with_torch(pool: WorkerPool) -> None:
    counts = pool.run(list_parameters, 1)[0]
    assert counts[::2] == counts[1::2] == [2, 2, 1]


def tune_the_first_bucket(rank: int, world_size: int) -> list[str]:
    before = dist._DEFAULT_FIRST_BUCKET_BYTES
    dist._DEFAULT_FIRST_BUCKET_BYTES = 100
    sizes = []
    try:
        for make in MAKE:
            model: Any = make(net())
            for x in inputs(rank, 2):
                model(x).sum().backward()
            model(inputs(rank, 1)[0]).sum().backward()
            sizes.append(model._get_ddp_logging_data()["rebuilt_bucket_sizes"])
    finally:
        dist._DEFAULT_FIRST_BUCKET_BYTES = before
    return sizes


def test_the_size_of_the_first_bucket_is_tuned_as_with_torch(pool: WorkerPool) -> None:
    theirs, ours = pool.run(tune_the_first_bucket, 1)[0]
    assert ours == theirs == "104, 128"


def batch_norm_across_ranks(rank: int, world_size: int) -> str:
    with pytest.raises(ValueError, match="SyncBatchNorm") as caught:
        ddp.DistributedDataParallel(nn.Sequential(nn.SyncBatchNorm(2)))
    return str(caught.value)


def test_batch_norm_across_ranks_is_refused_by_name_on_a_cpu(pool: WorkerPool) -> None:
    told = "SyncBatchNorm layers only work with GPU modules: 0 is a SyncBatchNorm, which needs a GPU"
    assert pool.run(batch_norm_across_ranks, 1)[0].startswith(told)


def create_graph(rank: int, world_size: int) -> list[str]:
    model = ddp.DistributedDataParallel(net())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for x in inputs(rank, 2):
            model(x).square().sum().backward(create_graph=True)
    return [str(one.message) for one in caught]


def test_gradients_of_gradients_are_warned_of_once(pool: WorkerPool) -> None:
    told = pool.run(create_graph, 1)[0]
    assert sum("gradients of gradients are not" in message for message in told) == 1
