"""Mistake: what a reduce-scatter still reads is zeroed for the next step.

Class: race on a GPU
To name: every rank; gradients.zero_()
Ranks: 2
Check: races
"""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
gradients = torch.ones(1024 * dist.get_world_size(), device="cuda")
shard = torch.empty(1024, device="cuda")
work = dist.reduce_scatter_single(shard, gradients, async_op=True)
gradients.zero_()
work.wait()
print(shard.sum().item())
