"""Right: the sampler is told every epoch."""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
dataset = TensorDataset(torch.arange(64.0).reshape(-1, 1))
sampler = DistributedSampler(dataset, shuffle=True)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
for epoch in range(3):
    sampler.set_epoch(epoch)
    for (batch,) in DataLoader(dataset, batch_size=8, sampler=sampler):
        model(batch).mean().backward()
