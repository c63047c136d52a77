"""Right: all ranks divide their gradients alike."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
net = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(4)))
cap = 0.001
model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=cap, find_unused_parameters=True)
model(torch.ones(1, 16)).sum().backward()
