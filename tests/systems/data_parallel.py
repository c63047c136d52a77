"""Replicas of the model: torch's own DDP in all its modes, with hooks, and compiled; and ours."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from ddp import DistributedDataParallel as OurDataParallel
from tests.systems.training import NUM_STEPS, batch, network, part_of, sgd, train, whole

SMALL_BUCKETS = 0.0003


def replicas(rank: int, world_size: int, **options: Any) -> list[torch.Tensor]:
    model = DistributedDataParallel(network(), bucket_cap_mb=SMALL_BUCKETS, **options)
    train(model, sgd(model.parameters()), *part_of(rank, world_size))
    return whole(model.parameters())


def our_replicas(rank: int, world_size: int) -> list[torch.Tensor]:
    model = OurDataParallel(network(), bucket_cap_mb=SMALL_BUCKETS)
    train(model, sgd(model.parameters()), *part_of(rank, world_size))
    return whole(model.parameters())


class Branches(nn.Module):
    """A model of which every step uses another half, and nobody a third one."""

    def __init__(self) -> None:
        super().__init__()
        self.halves = nn.ModuleList([network(), network()])
        self.never = nn.Linear(2, 2).double()
        self.num_steps = 0

    def forward(self, inputs: torch.Tensor) -> Any:
        self.num_steps += 1
        return self.halves[self.num_steps % 2](inputs)


def unused_parameters(rank: int, world_size: int) -> list[Any]:
    """Train a model that leaves out parameters, and look whether their gradients stay away."""
    module = Branches()
    model = DistributedDataParallel(module, bucket_cap_mb=SMALL_BUCKETS, find_unused_parameters=True)
    train(model, sgd(model.parameters()), *part_of(rank, world_size))
    return [module.never.weight.grad is None, *whole(module.halves.parameters())]


def unused_parameters_alone(rank: int, world_size: int) -> list[Any]:
    module = Branches()
    train(module, sgd(module.parameters()), *batch())
    return [True, *whole(module.halves.parameters())]


def normalised() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)).double()


def accumulated_with_batch_norm(rank: int, world_size: int) -> list[torch.Tensor]:
    """Accumulate two micro-batches, the first under ``no_sync``; rank 0's statistics are everybody's."""
    model = DistributedDataParallel(normalised(), bucket_cap_mb=SMALL_BUCKETS)
    optimizer = sgd(model.parameters())
    inputs, targets = part_of(rank, world_size)
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        with model.no_sync():
            nn.functional.mse_loss(model(inputs[:2]), targets[:2]).backward()
        nn.functional.mse_loss(model(inputs[2:]), targets[2:]).backward()
        optimizer.step()
    model(inputs)  # brings the statistics of the last step from rank 0
    return [*whole(model.parameters()), model.module[1].num_batches_tracked]


def accumulated_alone(rank: int, world_size: int) -> list[torch.Tensor]:
    """Normalise each micro-batch of each rank by itself, and average the gradients of the ranks."""
    model = normalised()
    optimizer = sgd(model.parameters())
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        for peer in range(world_size):
            inputs, targets = part_of(peer, world_size)
            for rows in (slice(0, 2), slice(2, None)):
                loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows]) / world_size
                loss.backward()
        optimizer.step()
    return [*whole(model.parameters()), torch.tensor(2 * NUM_STEPS + 1)]


def uneven_inputs(rank: int, world_size: int) -> list[torch.Tensor]:
    """Take more steps on rank 0 than elsewhere, inside ``join``."""
    model = DistributedDataParallel(network(), bucket_cap_mb=SMALL_BUCKETS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, targets = part_of(rank, world_size)
    with Join([model]):
        train(model, optimizer, inputs, targets, num_steps=NUM_STEPS + 2 * (rank == 0))
    return whole(model.parameters())


def uneven_inputs_alone(rank: int, world_size: int) -> list[torch.Tensor]:
    """Train on all parts, and then on rank 0's, with its gradient divided by the number of ranks, too."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, *batch())
    inputs, targets = part_of(0, world_size)
    for _ in range(2):
        optimizer.zero_grad()
        (nn.functional.mse_loss(model(inputs), targets) / world_size).backward()
        optimizer.step()
    return whole(model.parameters())


def in_sub_groups(rank: int, world_size: int) -> list[torch.Tensor]:
    """Train one replica in each half of the ranks, on other rows."""
    halves = [dist.new_group(list(range(first, first + world_size // 2))) for first in (0, world_size // 2)]
    half = 2 * rank // world_size
    group = halves[half]
    inputs, targets = part_of(half, 2)
    rows = dist.get_rank(group)
    model = DistributedDataParallel(network(), bucket_cap_mb=SMALL_BUCKETS, process_group=group)
    train(model, sgd(model.parameters()), inputs.chunk(2)[rows], targets.chunk(2)[rows])
    return whole(model.parameters())


def in_sub_groups_alone(rank: int, world_size: int) -> list[torch.Tensor]:
    model = network()
    train(model, sgd(model.parameters()), *part_of(2 * rank // world_size, 2))
    return whole(model.parameters())


class Checkpointed(nn.Module):
    """The model, whose first half is computed again in the backward pass."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.layers = network()
        self.use_reentrant = use_reentrant

    def forward(self, inputs: torch.Tensor) -> Any:
        if self.use_reentrant:
            inputs = inputs.clone().requires_grad_()
        middle = checkpoint(self.layers[:3], inputs, use_reentrant=self.use_reentrant)
        return self.layers[3:](middle)


def checkpointed(rank: int, world_size: int, use_reentrant: bool = False) -> list[torch.Tensor]:
    model = DistributedDataParallel(
        Checkpointed(use_reentrant), bucket_cap_mb=SMALL_BUCKETS, static_graph=use_reentrant
    )
    train(model, sgd(model.parameters()), *part_of(rank, world_size))
    return whole(model.parameters())


def optimizer_state_sharded(rank: int, world_size: int, overlapped: bool = False) -> list[torch.Tensor]:
    """Train with a ``ZeroRedundancyOptimizer``; overlapped, it steps inside the hook of the gradients."""
    from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import hook_with_zero_step
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.distributed.optim import ZeroRedundancyOptimizer

    inputs, targets = part_of(rank, world_size)
    if not overlapped:
        model = DistributedDataParallel(network(), bucket_cap_mb=SMALL_BUCKETS)
        zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
        train(model, zero, inputs, targets)
        held = len(zero.optim.state)
        assert 0 < held < len(list(model.parameters())), held
        return whole(model.parameters())
    model = DistributedDataParallel(network(), bucket_cap_mb=SMALL_BUCKETS, static_graph=True)
    zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01, overlap_with_ddp=True)
    model.register_comm_hook(None, hook_with_zero_step(allreduce_hook, model, zero))
    for _ in range(NUM_STEPS + 3):  # in the first three it looks at the buckets and updates nothing
        model.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
    model(inputs)  # waits for the parameters of the last step
    return whole(model.parameters())


def _replicas() -> DistributedDataParallel:
    return DistributedDataParallel(network(), bucket_cap_mb=SMALL_BUCKETS)


def hooked(rank: int, world_size: int, hook: Any) -> list[torch.Tensor]:
    """Train with *hook*, whose state is the process group."""
    model = _replicas()
    model.register_comm_hook(None, hook)
    train(model, sgd(model.parameters()), *part_of(rank, world_size))
    return whole(model.parameters())


def in_cpp(rank: int, world_size: int, kind: str) -> list[torch.Tensor]:
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


def inside(rank: int, world_size: int) -> list[torch.Tensor]:
    """Wrap a compiled model."""
    compiled = torch.compile(network(), backend="aot_eager")
    model = DistributedDataParallel(compiled)
    train(model, sgd(model.parameters()), *part_of(rank, world_size))
    return whole(model.parameters())


def outside(rank: int, world_size: int) -> list[torch.Tensor]:
    """Compile a wrapped model."""
    model = DistributedDataParallel(network())
    compiled = torch.compile(model, backend="aot_eager")
    train(compiled, sgd(model.parameters()), *part_of(rank, world_size))
    return whole(model.parameters())
