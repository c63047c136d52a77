"""Mistake: every rank goes through all the data, as the loader has no DistributedSampler.

Class: data division
To name: every rank; for (batch,) in loader:
"""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
dataset = TensorDataset(torch.arange(16.0).reshape(-1, 1))
loader = DataLoader(dataset, batch_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for (batch,) in loader:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
