"""Right: all ranks split with the same seed."""

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler, random_split

dist.init_process_group("gloo")
generator = torch.Generator().manual_seed(1)
training, validation = random_split(range(16), [12, 4], generator)
total = 0
for index in DistributedSampler(training, shuffle=False):
    total += training[index]
