"""Right: the sampler is told the number of the epoch."""

import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("gloo")
sampler = DistributedSampler(range(16), shuffle=True)
total = 0
for epoch in range(2):
    sampler.set_epoch(epoch)
    for index in sampler:
        total += index + epoch
