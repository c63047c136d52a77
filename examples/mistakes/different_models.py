"""Mistake: one rank builds another model, here by a setting that reached only some machines.

Class: parameter matching
To name: rank 1; model = torch.nn.parallel.DistributedDataParallel(net)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
width = 16 if dist.get_rank() == 1 else 8
net = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.Linear(width, 1))
model = torch.nn.parallel.DistributedDataParallel(net)
