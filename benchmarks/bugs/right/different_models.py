"""Right: all ranks build the same model."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
width = 8
net = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.Linear(width, 1))
model = torch.nn.parallel.DistributedDataParallel(net)
