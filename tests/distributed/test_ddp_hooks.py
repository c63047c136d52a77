"""Communication hooks: torch's own run unchanged and give torch's bits; wrong ones are told by name."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from functools import partial
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
    quantization_hooks,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager

import ddp
from ddp.buckets.torch_hooks import takes_turns
from tests.ddp.rank_threads import on_ranks
from tests.distributed.pool import WorkerPool
from tests.distributed.scenario import OURS, TORCH, Scenario, Scenarios, same

pytestmark = [pytest.mark.distributed, pytest.mark.filterwarnings("ignore")]
cases = Scenarios()

PER_TENSOR = quantization_hooks.quantization_pertensor_hook
PER_CHANNEL = quantization_hooks.quantization_perchannel_hook
BUILT_IN = torch._C._distributed_c10d.BuiltinCommHookType
SEVERAL_BUCKETS = {"bucket_cap_mb": 0.002}


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 4))


def hooked(make: Any, hook: Any, state: object = None) -> Any:
    model = make(net())
    model.register_comm_hook(state, hook)
    return model


def train(model: Any, rank: int, optimizer: Any = None, steps: int = 5) -> list[torch.Tensor]:
    """Return the gradients of each step, and the parameters at the end; by default train with SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05) if optimizer is None else optimizer
    generator = torch.Generator().manual_seed(rank)
    seen = []
    for _ in range(steps):
        model.zero_grad()
        model(torch.randn(3, 24, generator=generator)).square().mean().backward()
        seen += [parameter.grad.clone() for parameter in model.parameters()]
        optimizer.step()
    return seen + parameters_of(model)


def parameters_of(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def power_state() -> Any:
    return powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, matrix_approximation_rank=2)


def post_local_sgd(model: Any) -> None:
    subgroup, _ = dist.new_subgroups(group_size=1)
    state = post_localSGD_hook.PostLocalSGDState(None, subgroup, start_localSGD_iter=3)
    model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)


REGISTER: dict[str, Any] = {
    "allreduce": lambda model: model.register_comm_hook(None, default_hooks.allreduce_hook),
    "fp16": lambda model: model.register_comm_hook(None, default_hooks.fp16_compress_hook),
    "fp16_wrapper": lambda model: model.register_comm_hook(
        None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)
    ),
    "powerSGD": lambda model: model.register_comm_hook(power_state(), powerSGD_hook.powerSGD_hook),
    "post_localSGD": post_local_sgd,
    "noop": lambda model: model.register_comm_hook(None, debugging_hooks.noop_hook),
    "builtin_allreduce": lambda model: model._register_builtin_comm_hook(BUILT_IN.ALLREDUCE),
    "builtin_fp16": lambda model: model._register_builtin_comm_hook(BUILT_IN.FP16_COMPRESS),
    "fused_sgd": lambda model: model._register_fused_optim(torch.optim.SGD, 0.05, momentum=0.9),
}


# Over Gloo with torch's DDP callbacks of several buckets overtake each other, on every rank in another order.
@cases.add(SEVERAL_BUCKETS, given=[{"name": "powerSGD"}], places=["threads"], world_size=4)
@cases.add(given=[{"name": "powerSGD"}], chains=True)
@cases.add({**SEVERAL_BUCKETS, "gradient_as_bucket_view": True}, given=[{"name": "fp16"}])
@cases.add(SEVERAL_BUCKETS, given=[{"name": name} for name in REGISTER if name != "powerSGD"])
def torchs_own_hooks_train(make: Any, rank: int, name: str) -> list[torch.Tensor]:
    model = make(net())
    REGISTER[name](model)
    rate = 0.0 if name == "fused_sgd" else 0.05
    return train(model, rank, torch.optim.SGD(model.parameters(), lr=rate))


def power_one_at_a_time(state, bucket):  # type: ignore[no-untyped-def]
    """Torch's hook as it can be used over Gloo with torch's DDP: nothing else is under way beside it."""
    future = powerSGD_hook.powerSGD_hook(state, bucket)
    future.wait()
    return future


@cases.add({**SEVERAL_BUCKETS, "algorithm": "ring"}, places=["processes"], chains=True)
@cases.add({**SEVERAL_BUCKETS, "algorithm": "native"}, places=["processes"], world_size=3, chains=True)
def powersgd_trains_over_gloo_as_with_torch_bucket_by_bucket(make: Any, rank: int) -> list[torch.Tensor]:
    hook = powerSGD_hook.powerSGD_hook if make.func is OURS else power_one_at_a_time
    seen = [train(hooked(make, hook, power_state()), rank) for _ in range(2)]
    assert same(*seen)
    return seen[0]


def quantize_by_hand(per_channel: bool, flat: torch.Tensor) -> torch.Tensor:
    """The mean of what all ranks' gradients are after quantisation, in torch's order of operations."""
    gathered = [torch.zeros_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, flat)
    total = torch.zeros_like(nn.functional.pad(flat, (0, 512 - len(flat) % 512)) if per_channel else flat)
    for own in gathered:
        if per_channel:
            channels = nn.functional.pad(own, (0, 512 - len(own) % 512)).view(-1, 512)
            observer: Any = torch.ao.quantization.PerChannelMinMaxObserver()
            observer(channels)
            scale, zero = observer.calculate_qparams()
            there = quantization_hooks._quantize_per_channel_backend(channels, scale, zero)
            back = quantization_hooks._dequantize_per_channel_backend(there, scale, zero).flatten()
        else:
            observer = torch.ao.quantization.MinMaxObserver()
            observer(own)
            scale, zero = torch.FloatTensor([*observer.calculate_qparams()])
            there = quantization_hooks._quantize_per_tensor_backend(own, scale, zero)
            back = quantization_hooks._dequantize_per_tensor_backend(there, scale, zero)
        total += back
    return total[: len(flat)] / len(gathered)


@cases.add({**SEVERAL_BUCKETS, "algorithm": "native"}, given=[{"hook": PER_TENSOR}], chains=True)
@cases.add({**SEVERAL_BUCKETS, "algorithm": "ring"}, given=[{"hook": PER_CHANNEL}], chains=True)
@cases.add(SEVERAL_BUCKETS, given=[{"hook": PER_CHANNEL}], places=["threads"], world_size=3)
def quantization_hooks_train_on_several_buckets_as_by_hand(
    make: Any, rank: int, hook: Any
) -> list[torch.Tensor]:
    def by_hand(state, bucket):  # type: ignore[no-untyped-def]
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(quantize_by_hand(hook is PER_CHANNEL, bucket.buffer()))
        return future

    if make.func is TORCH:
        return train(hooked(make, by_hand), rank)
    seen = [train(hooked(make, hook, state), rank) for state in (dist.group.WORLD, None)]
    assert same(*seen)
    return seen[0]


@cases.add(expected=True, oracle=False)
def gradients_are_compressed_to_bfloat16_on_a_cpu_too(make: Any, rank: int) -> bool:
    model = make(nn.Linear(2, 2, bias=False))
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    model(torch.full((1, 2), rank + 1.3)).sum().backward()
    halves = [(torch.tensor(r + 1.3).bfloat16() / 2).bfloat16() for r in range(2)]
    return bool((model.module.weight.grad == (halves[0] + halves[1]).float()).all())


@cases.add(given=[{"hierarchical": False}])
@cases.add(given=[{"hierarchical": True}], world_size=4)
def models_are_averaged(make: Any, rank: int, hierarchical: bool) -> list[torch.Tensor]:
    from torch.distributed.optim import PostLocalSGDOptimizer  # its module warns when it is imported

    model = make(net())
    post_local_sgd(model)
    averager: Any = PeriodicModelAverager(period=2, warmup_steps=3)
    if hierarchical:
        averager = HierarchicalModelAverager(OrderedDict([(1, 2), (2, 4)]), warmup_steps=3)
    inner = torch.optim.SGD(model.parameters(), lr=0.05)
    return train(model, rank, PostLocalSGDOptimizer(inner, averager), steps=6)


@cases.add(SEVERAL_BUCKETS)
def torchs_sharded_optimizer_trains(make: Any, rank: int) -> list[torch.Tensor]:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = make(net())
    return train(model, rank, ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.05))


def shard(make: Any, rank: int, name: str, split: bool, group: Any = None) -> list[torch.Tensor]:
    from torch.distributed.algorithms.ddp_comm_hooks import ddp_zero_hook
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = make(net(), process_group=group)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.SGD, process_group=group, overlap_with_ddp=True, lr=0.05
    )
    hook = getattr(ddp_zero_hook, name)
    model.register_comm_hook(None, hook(default_hooks.allreduce_hook, model, optimizer, split))
    train(model, rank, _NoOptimizer())
    assert not same(parameters_of(model), parameters_of(net()))
    return parameters_of(model)


class _NoOptimizer:
    def step(self) -> None:
        """Leave it to the hook."""


ZERO = [
    {"name": name, "split": split}
    for name in ("hook_with_zero_step", "hook_with_zero_step_interleaved")
    for split in (False, True)
]


@cases.add(SEVERAL_BUCKETS, given=ZERO, places=["threads"], world_size=3)
@cases.add(SEVERAL_BUCKETS, given=ZERO[:2], places=["processes"])
def an_overlapped_sharded_optimizer_trains(
    make: Any, rank: int, name: str, split: bool
) -> list[torch.Tensor]:
    if not hasattr(dist.Backend, "PLAIN"):  # Gloo under a name that torch's check does not know
        dist.Backend.register_backend("plain", dist.ProcessGroupGloo, devices=["cpu"])
    with pytest.raises(RuntimeError, match=r"^Gloo backend using Overlapping DDP with ZeRO may meet hangs$"):
        shard(make, rank, name, split)
    return shard(make, rank, name, split, dist.new_group(backend="plain"))


@cases.test
def test_our_ddp_does_as_torchs(pool: WorkerPool, scenario: Scenario, place: str) -> None:
    with warnings.catch_warnings(record=True):  # torch warns of its own optimizer, whatever the filters say
        scenario.check(pool, place)


def fails_with(make: Any, hook: Any, rank: int, state: object) -> str:
    with pytest.raises((RuntimeError, AssertionError, ddp.errors.CommHookError)) as caught:
        train(hooked(make, hook, state), rank)
    return f"{type(caught.value).__name__}: {caught.value}".splitlines()[0]


def use_what_fails_in_torch(rank: int, world_size: int) -> list[str]:
    make = partial(TORCH, **SEVERAL_BUCKETS)
    quantized = [fails_with(make, hook, rank, dist.group.WORLD) for hook in (PER_TENSOR, PER_CHANNEL)]
    batched = powerSGD_hook.batched_powerSGD_hook
    return quantized + [fails_with(make, batched, rank, power_state()) for make in (TORCH, OURS)]


def test_hooks_that_raise_in_torch_itself_are_named_here_where_they_raise_here_too(pool: WorkerPool) -> None:
    """Quantisation takes the gathered tensors of Gloo for those of NCCL."""
    per_tensor, per_channel, batched, ours = pool.run(use_what_fails_in_torch, 1)[0]

    assert "IndexError: invalid index of a 0-dim tensor" in per_tensor
    assert "IndexError: too many indices for tensor of dim" in per_channel
    assert batched == "AssertionError: "
    assert ours.startswith("CommHookError: communication hook batched_powerSGD_hook raised AssertionError")


def ask_for_turns(rank: int, world_size: int) -> list[bool]:
    wrapped = default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook)
    hooks = (wrapped, partial(PER_CHANNEL, bucket_size=64), default_hooks.allreduce_hook, power_one_at_a_time)
    return [takes_turns(hook, dist.group.WORLD, torch.device("cpu")) for hook in hooks]


def test_hooks_that_chain_take_turns_over_gloo_within_wrappers_too(pool: WorkerPool) -> None:
    assert pool.run(ask_for_turns, 1) == [[True, True, False, False]]
    assert on_ranks(lambda rank: ask_for_turns(rank, 1), 1) == [[False] * 4]


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


def use_table(rank: int, world_size: int, times: int) -> torch.Tensor:
    def hook(state: object, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer() * times)
        return future

    model = ddp.DistributedDataParallel(nn.Embedding(5, 2, sparse=True))
    model.register_comm_hook(None, hook)
    model(torch.tensor([rank, rank, 4])).sum().backward()
    return model.module.weight.grad.to_dense()


def test_a_sparse_gradient_is_what_the_hook_has_made_of_it(pool: WorkerPool) -> None:
    once, thrice = pool.run(use_table, 2, 1), pool.run(use_table, 2, 3)

    assert all(torch.equal(more, 3 * less) for less, more in zip(once, thrice, strict=True))
    assert once[0][0].tolist() != [0, 0]
