"""Mistake: every rank draws its batches from the same seed, and FSDP averages equal gradients.

Class: data division
To name: every rank; model(batch()).square().mean().backward()
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
data = torch.randn(1000, 8)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def batch():
    return data[torch.randint(len(data), (16,))]


for _ in range(4):
    model(batch()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
