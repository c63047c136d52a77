"""Mistake: rank 0 alone asks for the mean loss, but every rank has to take part in a collective.

Class: call ordering
To name: rank 0; dist.all_reduce(loss.detach())
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        dist.all_reduce(loss.detach())
        print(f"step {step}: loss {loss.item():.3f}")
