"""Mistake: the work is waited for while a side stream is current, so the default stream never waits.

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
side = torch.cuda.Stream()
work = dist.all_reduce(total, async_op=True)
with torch.cuda.stream(side):
    work.wait()
mean = total / dist.get_world_size()
torch.cuda.synchronize()
print(mean.sum().item())
