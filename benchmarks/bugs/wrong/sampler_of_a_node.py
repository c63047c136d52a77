"""Mistake: the data are divided by the ranks of a node, of which there are two.

Class: data division
To name: every rank; for (batch,) in DataLoader(
"""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
dataset = TensorDataset(torch.arange(16.0).reshape(-1, 1))
sampler = DistributedSampler(dataset, num_replicas=2, rank=rank % 2, shuffle=False)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for (batch,) in DataLoader(dataset, batch_size=2, sampler=sampler):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
