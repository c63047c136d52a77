"""Right: the ranks lower the learning rate by the mean of their validation losses."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
for step in range(4):
    model(torch.ones(2, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    loss = torch.tensor(9.0 - step * dist.get_rank())
    dist.all_reduce(loss)
    scheduler.step(loss)
