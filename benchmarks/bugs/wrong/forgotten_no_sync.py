"""Mistake: gradients are averaged after every micro-batch, though only their sum is used.

Class: waste
To name: every rank; model(torch.ones(2, 2)).sum().backward()
"""

import contextlib

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    for _ in range(4):
        with contextlib.nullcontext():
            model(torch.ones(2, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
