"""Mistake: each rank splits off its validation data by its own seed, so some train on those of others.

Class: data division
To name: every rank; for index in DistributedSampler(
"""

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler, random_split

dist.init_process_group("gloo")
generator = torch.Generator().manual_seed(dist.get_rank())
training, validation = random_split(range(16), [12, 4], generator)
total = 0
for index in DistributedSampler(training, shuffle=False):
    total += training[index]
