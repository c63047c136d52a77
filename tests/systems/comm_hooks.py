"""Communication hooks of torch's DDP, which change gradients on their way: in Python and in C++."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

from tests.systems.data_parallel import SMALL_BUCKETS
from tests.systems.training import NUM_STEPS, network, part_of, sgd, train, whole


def _replicas() -> DistributedDataParallel:
    return DistributedDataParallel(network(), bucket_cap_mb=SMALL_BUCKETS)


def hooked(rank: int, world_size: int, hook: Any) -> list[torch.Tensor]:
    """Train with *hook*, whose state is the process group."""
    model = _replicas()
    model.register_comm_hook(None, hook)
    train(model, sgd(model.parameters()), *part_of(rank, world_size))
    return whole(model.parameters())


def in_cpp(rank: int, world_size: int, kind: str) -> list[torch.Tensor]:
    """Train with one of torch's hooks in C++."""
    model = _replicas()
    model._register_builtin_comm_hook(getattr(dist.BuiltinCommHookType, kind))
    train(model, sgd(model.parameters()), *part_of(rank, world_size))
    return whole(model.parameters())


def low_rank(rank: int, world_size: int) -> list[torch.Tensor]:
    """Train with PowerSGD at full rank, where it loses nothing but rounding."""
    model = _replicas()
    state = powerSGD_hook.PowerSGDState(
        None,
        matrix_approximation_rank=8,
        start_powerSGD_iter=2,
        min_compression_rate=0.01,
        use_error_feedback=True,
    )
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(model, sgd(model.parameters()), *part_of(rank, world_size))
    return whole(model.parameters())


def quantized(rank: int, world_size: int, hook: Any) -> list[torch.Tensor]:
    """Train in single precision with gradients that travel in eight bits."""
    model = DistributedDataParallel(network().float(), bucket_cap_mb=SMALL_BUCKETS)
    model.register_comm_hook(dist.group.WORLD, hook)
    inputs, targets = part_of(rank, world_size)
    train(model, sgd(model.parameters()), inputs.float(), targets.float())
    return [tensor.double() for tensor in whole(model.parameters())]


def locally(rank: int, world_size: int) -> list[torch.Tensor]:
    """Reduce gradients for a step, then only within groups of one rank, and average models every step."""
    from torch.distributed.optim import PostLocalSGDOptimizer  # warns of what it imports

    model = _replicas()
    for first in range(world_size):
        group = dist.new_group([first])
        if first == rank:
            own = group
    state = post_localSGD_hook.PostLocalSGDState(None, own, start_localSGD_iter=1)
    model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    averager = PeriodicModelAverager(period=1, warmup_steps=0)
    optimizer = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), averager)
    train(model, optimizer, *part_of(rank, world_size))
    return whole(model.parameters())


def locally_alone(rank: int, world_size: int) -> list[torch.Tensor]:
    """Step one model for each rank from the same place, and average the models."""
    model = network()
    for _ in range(NUM_STEPS):
        copies = [copy.deepcopy(model) for _ in range(world_size)]
        for peer, own in enumerate(copies):
            train(own, torch.optim.SGD(own.parameters(), lr=0.1), *part_of(peer, world_size), num_steps=1)
        with torch.no_grad():
            for parameter, *parts in zip(
                model.parameters(), *(own.parameters() for own in copies), strict=True
            ):
                parameter.copy_(torch.stack(parts).mean(0))
    return whole(model.parameters())
