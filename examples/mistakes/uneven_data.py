"""Mistake: ranks have different numbers of batches, and the one with fewer leaves the loop early.

Class: call ordering
To name: rank 3; model(batch).square().mean().backward()
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = torch.ones(5 if rank == 3 else 6, 4, 8)
for batch in batches:
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
