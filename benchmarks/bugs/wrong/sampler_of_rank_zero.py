"""Mistake: every rank makes the sampler of rank 0.

Class: data division
To name: ranks 0, 1, 2, 3; for index in sampler:
"""

import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("gloo")
sampler = DistributedSampler(range(16), num_replicas=dist.get_world_size(), rank=0)
total = 0
for index in sampler:
    total += index
