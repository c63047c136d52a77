"""Mistake: each rank lowers its learning rate by its own validation loss.

Class: replicas drift
To name: no rank; optimizer.step()
Check: replicas
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
for step in range(4):
    model(torch.ones(2, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    loss = torch.tensor(9.0 - step * dist.get_rank())
    scheduler.step(loss)
