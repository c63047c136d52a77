"""Mistake: the parts of all ranks are read on the GPU while they are being gathered.

Class: race on a GPU
To name: every rank; norm = whole.norm()
Ranks: 2
Check: races
"""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
part = torch.ones(1024, device="cuda")
whole = torch.empty(1024 * dist.get_world_size(), device="cuda")
work = dist.all_gather_single(whole, part, async_op=True)
norm = whole.norm()
work.wait()
print(norm.item())
