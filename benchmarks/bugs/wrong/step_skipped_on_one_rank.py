"""Mistake: a rank that finds its own loss too large leaves the optimizer's step out.

Class: replicas drift
To name: rank 1; optimizer.step()
Check: replicas
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 2)).sum().backward()
    is_large = torch.tensor(float(dist.get_rank() == 1 and step == 1))
    if not is_large:
        optimizer.step()
