"""Data of the ranks: samplers, loaders with processes of their own, seeds."""

from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.systems.training import NUM_ROWS, batch


def loader(rank: int, world_size: int, num_workers: int = 0) -> list[Any]:
    """Load two epochs, each in another order, and say which rows each rank has seen."""
    data = TensorDataset(torch.arange(NUM_ROWS), *batch())
    sampler = DistributedSampler(data, shuffle=True, seed=3)
    batches = DataLoader(data, batch_size=2, sampler=sampler, num_workers=num_workers)
    seen = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        rows = torch.cat([rows for rows, *_ in batches])
        everybody = [torch.empty_like(rows) for _ in range(world_size)]
        dist.all_gather(everybody, rows)
        seen.append(torch.stack(everybody))
    return [*seen, torch.cat([inputs for _, inputs, _ in batches]).sum(0)]


def loader_expected(rank: int, world_size: int) -> list[Any]:
    orders = [
        torch.randperm(NUM_ROWS, generator=torch.Generator().manual_seed(3 + epoch)) for epoch in range(2)
    ]
    seen = [order.view(-1, world_size).t() for order in orders]
    return [*seen, batch()[0][seen[-1][rank]].sum(0)]


def seeds(rank: int, world_size: int) -> list[Any]:
    """Draw numbers with another seed on each rank, while ranks take turns."""
    torch.manual_seed(100 + rank)
    drawn = []
    for _ in range(3):
        drawn.append(torch.rand(2))
        drawn.append(torch.nn.functional.dropout(torch.ones(8)))
        dist.barrier()
    return drawn


def seeds_expected(rank: int, world_size: int) -> list[Any]:
    with torch.random.fork_rng():
        torch.manual_seed(100 + rank)
        return [
            drawn for _ in range(3) for drawn in (torch.rand(2), torch.nn.functional.dropout(torch.ones(8)))
        ]
