"""Mistake: two steps in flight share one buffer, where each needs its own.

Class: race on a GPU
To name: every rank; bucket.fill_(float(step))
Ranks: 2
Check: races
"""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
bucket = torch.empty(1024, device="cuda")
works = []
for step in range(2):
    bucket.fill_(float(step))
    works.append(dist.all_reduce(bucket, async_op=True))
for work in works:
    work.wait()
print(bucket.sum().item())
