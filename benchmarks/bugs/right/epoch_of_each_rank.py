"""Right: all ranks count the same epochs."""

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("gloo")
sampler = DistributedSampler(range(16), shuffle=True)
first = 3
total = 0
for epoch in range(first, first + 2):
    sampler.set_epoch(epoch)
    for index in sampler:
        total += index
dist.all_reduce(torch.tensor(float(total)))
