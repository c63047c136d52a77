"""Right: the ranks agree on leaving a step out."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 2)).sum().backward()
    is_large = torch.tensor(float(dist.get_rank() == 1 and step == 1))
    dist.all_reduce(is_large)
    if not is_large:
        optimizer.step()
