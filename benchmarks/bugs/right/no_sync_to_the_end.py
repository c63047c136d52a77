"""Right: the last micro-batch is outside of no_sync."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.ones(2, 2) * (1 + dist.get_rank())
for _ in range(2):
    with model.no_sync():
        model(inputs).sum().backward()
    model(inputs).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
