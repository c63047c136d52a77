"""Mistake: a rank that came back counts its epochs from 0 again, so it shuffles otherwise than the others.

Class: data division
To name: rank 2; for index in sampler:
"""

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("gloo")
sampler = DistributedSampler(range(16), shuffle=True)
first = 0 if dist.get_rank() == 2 else 3
total = 0
for epoch in range(first, first + 2):
    sampler.set_epoch(epoch)
    for index in sampler:
        total += index
dist.all_reduce(torch.tensor(float(total)))
