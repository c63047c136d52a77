"""Right: gradients are averaged after the last micro-batch."""

import contextlib

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    for number in range(4):
        with contextlib.nullcontext() if number == 3 else model.no_sync():
            model(torch.ones(2, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
