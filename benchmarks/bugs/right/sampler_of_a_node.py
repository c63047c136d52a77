"""Right: the data are divided by all ranks."""

import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("gloo")
rank = dist.get_rank()
sampler = DistributedSampler(range(16), num_replicas=dist.get_world_size(), rank=rank)
total = 0
for index in sampler:
    total += index
