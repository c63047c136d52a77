"""Mistake: gradients are added up and not averaged, so the step grows with the number of ranks.

Class: gradient of another batch
To name: no rank; optimizer.step()
Ranks: 4
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
    own = batch[rank::world_size]
    model(own).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
