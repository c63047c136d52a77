"""Mistake: each rank clips its own gradient before it is averaged.

Class: gradient of another batch
To name: no rank; optimizer.step()
Check: same
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
rank, world_size = dist.get_rank(), dist.get_world_size()
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.arange(16.0).reshape(8, 2)
for _ in range(2):
    model(batch[rank::world_size]).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size
    optimizer.step()
    optimizer.zero_grad()
