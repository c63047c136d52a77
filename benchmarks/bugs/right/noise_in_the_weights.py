"""Right: weights get noise of a generator that is alike on all ranks."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
generator = torch.Generator().manual_seed(7)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 2)).sum().backward()
    with torch.no_grad():
        model.module.weight.grad += torch.randn(1, 2, generator=generator)
    optimizer.step()
    optimizer.zero_grad()
