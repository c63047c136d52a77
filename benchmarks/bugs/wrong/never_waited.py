"""Mistake: gradients are reduced in the background, and nobody waits for them before the step.

Class: request lifecycle
To name: every rank; optimizer.step()
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4) * dist.get_rank()).sum().backward()
for parameter in model.parameters():
    dist.all_reduce(parameter.grad, async_op=True)
optimizer.step()
