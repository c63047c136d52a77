"""Mistake: weights are used while they are still being broadcast.

Class: race on a GPU
To name: rank 1; outputs = inputs @ weights
Ranks: 2
Check: races
"""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
weights = torch.full((64, 64), float(dist.get_rank()), device="cuda")
inputs = torch.ones(8, 64, device="cuda")
work = dist.broadcast(weights, src=0, async_op=True)
outputs = inputs @ weights
work.wait()
print(outputs.sum().item())
