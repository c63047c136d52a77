"""Right: rank 0 alone evaluates the model inside, which broadcasts nothing."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        with torch.no_grad():
            print(f"epoch {epoch}: {net(torch.ones(4, 8)).mean().item():.3f}")
