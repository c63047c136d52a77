"""Right: every rank makes the sampler of its own rank."""

import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("gloo")
sampler = DistributedSampler(range(16), num_replicas=dist.get_world_size(), rank=dist.get_rank())
total = 0
for index in sampler:
    total += index
