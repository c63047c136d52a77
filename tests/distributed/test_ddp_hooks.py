"""Communication hooks: torch's own run unchanged and give torch's bits; wrong ones are told by name."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import (
    debugging_hooks,
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager

import ddp
from collectives.virtual import run_virtual
from sim.topology import Topology
from tests.distributed.gloo_callbacks import callbacks_gone
from tests.distributed.pool import WorkerPool

pytestmark = pytest.mark.distributed

Register = Callable[[Any], None]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4))


def power_sgd(model: Any, hook: Any) -> None:
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, matrix_approximation_rank=2)
    model.register_comm_hook(state, hook)


def post_local_sgd(model: Any) -> None:
    subgroup, _ = dist.new_subgroups(group_size=1)
    state = post_localSGD_hook.PostLocalSGDState(None, subgroup, start_localSGD_iter=3)
    model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)


REGISTER: dict[str, Register] = {
    "allreduce": lambda model: model.register_comm_hook(None, default_hooks.allreduce_hook),
    "fp16": lambda model: model.register_comm_hook(None, default_hooks.fp16_compress_hook),
    "fp16_wrapper": lambda model: model.register_comm_hook(
        None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)
    ),
    "powerSGD": lambda model: power_sgd(model, powerSGD_hook.powerSGD_hook),
    "post_localSGD": post_local_sgd,
    "noop": lambda model: model.register_comm_hook(None, debugging_hooks.noop_hook),
    "builtin_allreduce": lambda model: model._register_builtin_comm_hook(
        torch._C._distributed_c10d.BuiltinCommHookType.ALLREDUCE
    ),
    "builtin_fp16": lambda model: model._register_builtin_comm_hook(
        torch._C._distributed_c10d.BuiltinCommHookType.FP16_COMPRESS
    ),
    "fused_sgd": lambda model: model._register_fused_optim(torch.optim.SGD, 0.05, momentum=0.9),
}

# Over Gloo with torch's DDP callbacks of several buckets overtake each other, on every rank in another order.
CHAINED = ("powerSGD",)


def train(
    which: str, rank: int, name: str, options: dict[str, Any], cap: float | None = None
) -> list[torch.Tensor]:
    make = nn.parallel.DistributedDataParallel if which == "torch" else ddp.DistributedDataParallel
    model: Any = make(net(), bucket_cap_mb=cap if name in CHAINED else 0.002, **options)
    REGISTER[name](model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0 if name == "fused_sgd" else 0.05)
    generator = torch.Generator().manual_seed(rank)
    seen = []
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(3, 24, generator=generator)).square().mean().backward()
        seen += [parameter.grad.clone() for parameter in model.parameters()]
        optimizer.step()
    return seen + [parameter.detach().clone() for parameter in model.parameters()]


def compare(rank: int, world_size: int, name: str, options: dict[str, Any]) -> bool:
    with callbacks_gone() if name in CHAINED else contextlib.nullcontext():
        theirs = train("torch", rank, name, options)
        ours = train("ours", rank, name, options)
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", REGISTER)
def test_torchs_own_hooks_give_torchs_bits(pool: WorkerPool, name: str) -> None:
    assert pool.run(compare, 2, name, {}) == [True, True]


def test_hooks_go_with_gradients_that_are_views(pool: WorkerPool) -> None:
    assert pool.run(compare, 2, "fp16", {"gradient_as_bucket_view": True}) == [True, True]


def hook_on_a_thread(rank: int, which: str) -> list[torch.Tensor]:
    dist.init_process_group("gloo")
    try:
        return train(which, rank, "powerSGD", {}, cap=0.002)
    finally:
        dist.destroy_process_group()


def test_hooks_that_chain_collectives_on_several_buckets_give_torchs_bits_in_virtual_time() -> None:
    theirs, ours = (
        run_virtual(
            lambda rank, which=which: hook_on_a_thread(rank, which),
            Topology.switch(num_ranks=4, bandwidth="1Gbps", latency="5us"),
        ).results
        for which in ("torch", "ours")
    )
    for a, b in zip(ours, theirs, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def compress_to_bfloat16(rank: int, world_size: int) -> bool:
    model = ddp.DistributedDataParallel(nn.Linear(2, 2, bias=False))
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    model(torch.full((1, 2), rank + 1.3)).sum().backward()
    halves = [(torch.tensor(r + 1.3).bfloat16() / 2).bfloat16() for r in range(world_size)]
    return bool((model.module.weight.grad == (halves[0] + halves[1]).float()).all())


def test_gradients_are_compressed_to_bfloat16_on_a_cpu_too(pool: WorkerPool) -> None:
    assert pool.run(compress_to_bfloat16, 2) == [True, True]


def average_models(rank: int, world_size: int, hierarchical: bool) -> bool:
    from torch.distributed.optim import PostLocalSGDOptimizer  # its module warns when it is imported

    finals = []
    for make in (nn.parallel.DistributedDataParallel, ddp.DistributedDataParallel):
        model: Any = make(net())
        post_local_sgd(model)
        averager: Any = PeriodicModelAverager(period=2, warmup_steps=3)
        if hierarchical:
            averager = HierarchicalModelAverager(OrderedDict([(1, 2), (2, world_size)]), warmup_steps=3)
        optimizer = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), averager)
        generator = torch.Generator().manual_seed(rank)
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.randn(3, 24, generator=generator)).square().mean().backward()
            optimizer.step()
        finals.append([parameter.detach().clone() for parameter in model.parameters()])
    return all(torch.equal(a, b) for a, b in zip(*finals, strict=True))


@pytest.mark.parametrize("hierarchical", [False, True])
def test_models_are_averaged_as_with_torch(pool: WorkerPool, hierarchical: bool) -> None:
    assert pool.run(average_models, 4 if hierarchical else 2, hierarchical) in ([True] * 2, [True] * 4)


def shard_the_optimizer(rank: int, world_size: int) -> bool:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    finals = []
    for make in (nn.parallel.DistributedDataParallel, ddp.DistributedDataParallel):
        model: Any = make(net(), bucket_cap_mb=0.002)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.05)
        generator = torch.Generator().manual_seed(rank)
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.randn(3, 24, generator=generator)).square().mean().backward()
            optimizer.step()
        finals.append([parameter.detach().clone() for parameter in model.parameters()])
    return all(torch.equal(a, b) for a, b in zip(*finals, strict=True))


def test_torchs_sharded_optimizer_trains_as_with_torch(pool: WorkerPool) -> None:
    assert pool.run(shard_the_optimizer, 2) == [True, True]


class Listening:
    """What hooks see."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def hook(self, state: object, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        same = all(g.shape == p.shape for g, p in zip(bucket.gradients(), bucket.parameters(), strict=True))
        self.seen.append((bucket.index(), bucket.is_last(), bucket.buffer().tolist(), same))
        bucket.set_buffer(bucket.buffer().double() * 2)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future


def listen(rank: int, world_size: int) -> tuple[list[Any], list[float]]:
    listening = Listening()
    model = ddp.DistributedDataParallel(
        nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1)), bucket_cap_mb=1e-6
    )
    nn.init.ones_(model.module[0].weight)
    nn.init.ones_(model.module[1].weight)
    model.register_comm_hook(None, listening.hook)
    for _ in range(2):
        model.zero_grad()
        model(torch.full((1, 1), rank + 3.0)).sum().backward()
    return listening.seen[1:], [p.grad.item() for p in model.parameters()]


def test_a_hook_sees_undivided_gradients_bucket_by_bucket_and_may_change_their_dtype(
    pool: WorkerPool,
) -> None:
    for rank, (seen, grads) in enumerate(pool.run(listen, 2)):
        x = rank + 3.0
        assert seen == [(0, False, [1.0], True), (1, False, [x], True), (2, True, [x], True)]
        assert grads == [2 * x, 2 * x, 2.0]


def returns_none(state: object, bucket: Any) -> Any:
    return None


def raises(state: object, bucket: Any) -> Any:
    raise ZeroDivisionError("inside the hook")


def holds_an_error(state: object, bucket: Any) -> Any:
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_exception(ZeroDivisionError("inside the future"))
    return future


def holds_no_tensor(state: object, bucket: Any) -> Any:
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(3)
    return future


def use_wrong_hook(rank: int, world_size: int, hook: Any) -> tuple[str, float]:
    model = ddp.DistributedDataParallel(nn.Linear(1, 1, bias=False))
    model.register_comm_hook(None, hook)
    with pytest.raises((TypeError, ZeroDivisionError)) as caught:
        model(torch.ones(1, 1)).sum().backward()
    model._driver.in_flight.comm_hook = None
    model.zero_grad()
    model(torch.full((1, 1), float(rank))).sum().backward()
    return str(caught.value), model.module.weight.grad.item()


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        (returns_none, "hook returns_none returned None for bucket 0; it must return a torch.futures.Future"),
        (raises, "inside the hook"),
        (holds_an_error, "inside the future"),
        (holds_no_tensor, "hook holds_no_tensor holds 3, a int for bucket 0; it must hold a tensor of 1"),
    ],
)
def test_a_hook_that_fails_is_told_by_its_own_error_and_the_next_pass_works(
    pool: WorkerPool, hook: Any, message: str
) -> None:
    for told, grad in pool.run(use_wrong_hook, 2, hook):
        assert message in told
        assert grad == 0.5


def takes_a_number(state: object, bucket: int) -> Any:
    return bucket


def takes_nothing() -> None: ...


def register_wrongly(rank: int, world_size: int) -> list[str]:
    model = ddp.DistributedDataParallel(nn.Linear(1, 1))
    told = []
    for hook in (3, takes_nothing, takes_a_number):
        with pytest.raises((TypeError, ValueError)) as caught:
            model.register_comm_hook(None, hook)
        told.append(str(caught.value))
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    with pytest.raises(RuntimeError) as twice:
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    with pytest.raises(ValueError, match="no built-in") as unknown:
        ddp.DistributedDataParallel(nn.Linear(1, 1))._register_builtin_comm_hook("FP8")
    return [*told, str(twice.value), str(unknown.value)]


def test_what_is_no_hook_and_a_second_hook_are_refused(pool: WorkerPool) -> None:
    not_callable, no_arguments, number, twice, unknown = pool.run(register_wrongly, 1)[0]

    assert "must be callable, got 3" in not_callable
    assert "is called with a state and a bucket" in no_arguments
    assert "takes a torch.distributed.GradBucket" in number
    assert "registered already, allreduce_hook" in twice
    assert "no built-in communication hook is called 'FP8'" in unknown
