"""Mistake: two groups reduce one tensor at once, each on a stream of its own.

Class: race on a GPU
To name: every rank; second = dist.all_reduce(total, group=other, async_op=True)
Ranks: 2
Check: races
"""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
other = dist.new_group()
total = torch.ones(1024, device="cuda")
first = dist.all_reduce(total, async_op=True)
second = dist.all_reduce(total, group=other, async_op=True)
first.wait()
second.wait()
print(total.sum().item())
