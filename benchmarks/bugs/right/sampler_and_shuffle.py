"""Right: the sampler shuffles."""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
dataset = TensorDataset(torch.arange(16.0))
loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
print(len(loader))
