"""Mistake: a rank freezes a layer after wrapping, so its gradients never come to the bucket.

Class: call ordering
To name: rank 1; model(torch.ones(2, 2)).sum().backward()
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
model = torch.nn.parallel.DistributedDataParallel(net)
net[0].requires_grad_(dist.get_rank() != 1)
for _ in range(2):
    model(torch.ones(2, 2)).sum().backward()
