"""Mistake: every rank gives the sampler its own seed, so the ranks divide different shuffles.

Class: data division
To name: every rank; for (batch,) in DataLoader(
"""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
dataset = TensorDataset(torch.arange(64.0).reshape(-1, 1))
sampler = DistributedSampler(dataset, shuffle=True, seed=rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (batch,) in DataLoader(dataset, batch_size=8, sampler=sampler):
        model(batch).mean().backward()
