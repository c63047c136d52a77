"""Mistake: the sampler is told a constant epoch, that of the configuration.

Class: data division
To name: every rank; for index in sampler:
"""

import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("gloo")
sampler = DistributedSampler(range(16), shuffle=True)
total = 0
for epoch in range(2):
    sampler.set_epoch(0)
    for index in sampler:
        total += index + epoch
