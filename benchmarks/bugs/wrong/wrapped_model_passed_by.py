"""Mistake: the loss is that of the module inside, past DDP, which so never averages gradients.

Class: replicas drift
To name: no rank; optimizer.step()
Check: replicas
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
net = torch.nn.Linear(2, 1)
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    inputs = torch.ones(2, 2) * (1 + dist.get_rank())
    net(inputs).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
