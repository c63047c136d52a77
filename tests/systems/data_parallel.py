"""Replicas of the model: torch's own DDP in all its modes, and ours."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from ddp import DistributedDataParallel as OurDataParallel
from tests.systems.training import NUM_STEPS, batch, network, part_of, sgd, train, whole

SMALL_BUCKETS = 0.0003


def replicas(rank: int, world_size: int, **options: Any) -> list[torch.Tensor]:
    """Train torch's DDP with *options*."""
    model = DistributedDataParallel(network(), bucket_cap_mb=SMALL_BUCKETS, **options)
    train(model, sgd(model.parameters()), *part_of(rank, world_size))
    return whole(model.parameters())


def our_replicas(rank: int, world_size: int) -> list[torch.Tensor]:
    """Train our own DDP."""
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
        """Return the output of the half whose turn it is."""
        self.num_steps += 1
        return self.halves[self.num_steps % 2](inputs)


def unused_parameters(rank: int, world_size: int) -> list[Any]:
    """Train a model that leaves out parameters, and look whether their gradients stay away."""
    module = Branches()
    model = DistributedDataParallel(module, bucket_cap_mb=SMALL_BUCKETS, find_unused_parameters=True)
    train(model, sgd(model.parameters()), *part_of(rank, world_size))
    return [module.never.weight.grad is None, *whole(module.halves.parameters())]


def unused_parameters_alone(rank: int, world_size: int) -> list[Any]:
    """Do the same in one process."""
    module = Branches()
    train(module, sgd(module.parameters()), *batch())
    return [True, *whole(module.halves.parameters())]


def normalised() -> nn.Sequential:
    """Return a model with batch statistics."""
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
    """Train on the rows of this rank's half."""
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
        """Return the output of all layers."""
        if self.use_reentrant:
            inputs = inputs.clone().requires_grad_()
        middle = checkpoint(self.layers[:3], inputs, use_reentrant=self.use_reentrant)
        return self.layers[3:](middle)


def checkpointed(rank: int, world_size: int, use_reentrant: bool = False) -> list[torch.Tensor]:
    """Train with activation checkpointing."""
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
