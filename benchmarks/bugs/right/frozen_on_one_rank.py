"""Right: every rank freezes the layer, before wrapping."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
net[0].requires_grad_(False)
model = torch.nn.parallel.DistributedDataParallel(net)
for _ in range(2):
    model(torch.ones(2, 2)).sum().backward()
