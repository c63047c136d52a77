"""Mistake: the loader is to shuffle, and the sampler does already.

Class: invalid parameter
To name: every rank; loader = DataLoader(
"""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
dataset = TensorDataset(torch.arange(16.0))
loader = DataLoader(dataset, shuffle=True, sampler=DistributedSampler(dataset))
print(len(loader))
