"""Mistake: nobody tells the sampler which epoch it is, so every epoch comes in the same order.

Class: data division
To name: every rank; for (batch,) in DataLoader(
"""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
dataset = TensorDataset(torch.arange(64.0).reshape(-1, 1))
sampler = DistributedSampler(dataset, shuffle=True)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
for _ in range(3):
    for (batch,) in DataLoader(dataset, batch_size=8, sampler=sampler):
        model(batch).mean().backward()
