"""Torch's hooks that chain collectives train on several buckets, over Gloo, too, and on rank threads."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, quantization_hooks

import ddp
from collectives.virtual import run_virtual
from ddp.buckets.torch_hooks import takes_turns
from sim.topology import Topology
from tests.distributed.gloo_callbacks import callbacks_gone
from tests.distributed.pool import WorkerPool

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:DeprecationWarning"),
]

PER_TENSOR = quantization_hooks.quantization_pertensor_hook
PER_CHANNEL = quantization_hooks.quantization_perchannel_hook
TORCH, OURS = nn.parallel.DistributedDataParallel, ddp.DistributedDataParallel


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 4))


def train(model: Any, rank: int, optimizer: Any = None) -> list[torch.Tensor]:
    step = torch.optim.SGD(model.parameters(), lr=0.05).step if optimizer is None else lambda: None
    generator = torch.Generator().manual_seed(rank)
    for _ in range(4):
        model.zero_grad()
        model(torch.randn(3, 24, generator=generator)).square().mean().backward()
        step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def hooked(make: Any, hook: Any, state: object, **options: Any) -> Any:
    model = make(net(), bucket_cap_mb=0.002, **options)
    model.register_comm_hook(state, hook)
    return model


def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def on_threads(fn: Callable[[int], Any], num_ranks: int = 3) -> list[Any]:
    def run(rank: int) -> Any:
        dist.init_process_group("nccl")  # the name under which torch lets all hooks run
        try:
            return fn(rank)
        finally:
            dist.destroy_process_group()

    topology = Topology.switch(num_ranks=num_ranks, bandwidth="1Gbps", latency="5us")
    return run_virtual(run, topology).results


def power_state() -> Any:
    return powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, matrix_approximation_rank=2)


def power_one_at_a_time(state, bucket):  # type: ignore[no-untyped-def]
    """Torch's hook as it can be used over Gloo with torch's DDP: nothing else is under way beside it."""
    future = powerSGD_hook.powerSGD_hook(state, bucket)
    future.wait()
    return future


def compress(rank: int, world_size: int, algorithm: str) -> bool:
    with callbacks_gone():
        return compress_as_torch(rank, algorithm)


def compress_as_torch(rank: int, algorithm: str) -> bool:
    theirs = train(hooked(TORCH, power_one_at_a_time, power_state()), rank)
    return all(
        equal(
            train(hooked(OURS, powerSGD_hook.powerSGD_hook, power_state(), algorithm=algorithm), rank), theirs
        )
        for _ in range(2)
    )


@pytest.mark.parametrize(("world_size", "algorithm"), [(2, "ring"), (3, "native")])
def test_powersgd_trains_over_gloo_on_several_buckets_as_with_torch_bucket_by_bucket(
    pool: WorkerPool, world_size: int, algorithm: str
) -> None:
    assert pool.run(compress, world_size, algorithm) == [True] * world_size


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


def quantize(rank: int, hook: Any, algorithm: str) -> bool:
    def by_hand(state, bucket):  # type: ignore[no-untyped-def]
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(quantize_by_hand(hook is PER_CHANNEL, bucket.buffer()))
        return future

    theirs = train(hooked(TORCH, by_hand, None), rank)
    ours = [train(hooked(OURS, hook, state, algorithm=algorithm), rank) for state in (dist.group.WORLD, None)]
    return all(equal(one, theirs) for one in ours)


def quantize_over_gloo(rank: int, world_size: int, hook: Any, algorithm: str) -> bool:
    with callbacks_gone():
        return quantize(rank, hook, algorithm)


@pytest.mark.parametrize(("hook", "algorithm"), [(PER_TENSOR, "native"), (PER_CHANNEL, "ring")])
def test_quantization_hooks_train_over_gloo_on_several_buckets(
    pool: WorkerPool, hook: Any, algorithm: str
) -> None:
    assert pool.run(quantize_over_gloo, 2, hook, algorithm) == [True, True]


def quantize_with_torch(rank: int, world_size: int, hook: Any) -> str:
    with pytest.raises(RuntimeError) as caught:
        train(hooked(TORCH, hook, dist.group.WORLD), rank)
    return str(caught.value).splitlines()[0]


@pytest.mark.parametrize(
    ("hook", "error"),
    [(PER_TENSOR, "invalid index of a 0-dim tensor"), (PER_CHANNEL, "too many indices for tensor of dim")],
)
def test_quantization_hooks_of_torch_take_gloos_gathered_tensors_for_nccls_and_raise(
    pool: WorkerPool, hook: Any, error: str
) -> None:
    assert f"IndexError: {error}" in pool.run(quantize_with_torch, 1, hook)[0]


@pytest.mark.parametrize("hook", [PER_TENSOR, PER_CHANNEL])
def test_quantization_hooks_train_on_rank_threads(hook: Any) -> None:
    assert on_threads(lambda rank: quantize(rank, hook, "native")) == [True] * 3


def ask_for_turns(rank: int, world_size: int) -> list[bool]:
    wrapped = default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook)
    hooks = (wrapped, partial(PER_CHANNEL, bucket_size=64), default_hooks.allreduce_hook, power_one_at_a_time)
    return [takes_turns(hook, dist.group.WORLD, torch.device("cpu")) for hook in hooks]


def test_hooks_that_chain_take_turns_within_wrappers_too_and_others_do_not(pool: WorkerPool) -> None:
    assert pool.run(ask_for_turns, 1) == [[True, True, False, False]]


def compress_batched(rank: int, world_size: int) -> list[str]:
    told = []
    for make in (TORCH, OURS):
        state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
        with pytest.raises(Exception, match=r"^$|batched") as caught:
            train(hooked(make, powerSGD_hook.batched_powerSGD_hook, state), rank)
        told.append(f"{type(caught.value).__name__}: {caught.value}")
    return told


def test_batched_powersgd_raises_in_torch_itself_and_is_named_here(pool: WorkerPool) -> None:
    theirs, ours = pool.run(compress_batched, 1)[0]
    assert theirs == "AssertionError: "
    assert ours.startswith("CommHookError: communication hook batched_powerSGD_hook raised AssertionError")


def zero_hook(name: str) -> Any:
    """Return one of torch's hooks that run a sharded optimizer; their module warns when it is imported."""
    from torch.distributed.algorithms.ddp_comm_hooks import ddp_zero_hook

    return getattr(ddp_zero_hook, name)


def shard(rank: int, make: Any, which: Any, split: bool, group: Any = None) -> list[torch.Tensor]:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = make(net(), bucket_cap_mb=0.002, process_group=group)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.SGD, process_group=group, overlap_with_ddp=True, lr=0.05
    )
    model.register_comm_hook(None, which(default_hooks.allreduce_hook, model, optimizer, split))
    return train(model, rank, optimizer)


@pytest.mark.parametrize("name", ["hook_with_zero_step", "hook_with_zero_step_interleaved"])
@pytest.mark.parametrize("split", [False, True])
def test_an_overlapped_sharded_optimizer_trains_on_rank_threads_as_with_torch(name: str, split: bool) -> None:
    which = zero_hook(name)

    def compare(rank: int) -> bool:
        theirs, ours = (shard(rank, make, which, split) for make in (TORCH, OURS))
        return equal(theirs, ours) and not equal(ours, list(net().parameters()))

    with warnings.catch_warnings(record=True):  # torch warns of its own optimizer, whatever the filters say
        assert on_threads(compare) == [True] * 3


def shard_over_gloo(rank: int, world_size: int, split: bool) -> bool:
    if not hasattr(dist.Backend, "PLAIN"):  # Gloo under a name that torch's check does not know
        dist.Backend.register_backend("plain", dist.ProcessGroupGloo, devices=["cpu"])
    which = zero_hook("hook_with_zero_step")
    theirs, ours = (
        shard(rank, make, which, split, dist.new_group(backend="plain")) for make in (TORCH, OURS)
    )
    told = []
    for make in (TORCH, OURS):
        with pytest.raises(RuntimeError) as caught:
            shard(rank, make, which, split)
        told.append(str(caught.value))
    assert told[0] == told[1] == "Gloo backend using Overlapping DDP with ZeRO may meet hangs"
    return equal(theirs, ours) and not equal(ours, list(net().parameters()))


@pytest.mark.parametrize("split", [False, True])
def test_an_overlapped_sharded_optimizer_trains_as_with_torch_and_is_refused_over_gloo_as_there(
    pool: WorkerPool, split: bool
) -> None:
    assert pool.run(shard_over_gloo, 2, split) == [True, True]
