"""Right: all ranks divide their gradients alike."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
net = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4)))
model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=1)
for _ in range(2):  # buckets are divided anew after the first
    model(torch.ones(1, 512)).sum().backward()
