"""Mistake: the mean is taken on the GPU of a sum that is still being reduced.

Class: race on a GPU
To name: every rank; mean = total / dist.get_world_size()
Ranks: 2
Check: races
"""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
total = torch.ones(1024, device="cuda")
work = dist.all_reduce(total, async_op=True)
mean = total / dist.get_world_size()
work.wait()
print(mean.sum().item())
