"""Mistake: the data are divided by the ranks of a node, of which there are two.

Class: data division
To name: every rank; for index in sampler:
"""

import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("gloo")
rank = dist.get_rank()
sampler = DistributedSampler(range(16), num_replicas=2, rank=rank % 2)
total = 0
for index in sampler:
    total += index
