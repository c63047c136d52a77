"""Mistake: the next micro-batch adds to a gradient that is being reduced.

Class: race on a GPU
To name: every rank; gradient += 1
Ranks: 2
Check: races
"""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
gradient = torch.ones(1024, device="cuda")
work = dist.all_reduce(gradient, async_op=True)
gradient += 1
work.wait()
print(gradient.sum().item())
