"""Mistake: gradients are cleared on the GPU while they are being reduced.

Class: race on a GPU
To name: every rank; gradient.zero_()
Ranks: 2
Check: races
"""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
weight = torch.ones(1024, device="cuda")
gradient = torch.ones(1024, device="cuda")
work = dist.all_reduce(gradient, async_op=True)
gradient.zero_()
work.wait()
weight -= 0.1 * gradient
print(weight.sum().item())
