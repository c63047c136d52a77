"""Right: the data are divided by all ranks."""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
dataset = TensorDataset(torch.arange(16.0).reshape(-1, 1))
sampler = DistributedSampler(dataset, num_replicas=dist.get_world_size(), rank=rank, shuffle=False)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for (batch,) in DataLoader(dataset, batch_size=2, sampler=sampler):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
