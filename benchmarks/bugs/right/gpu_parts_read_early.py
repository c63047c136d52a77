"""Right: the gather is waited for before the norm."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
part = torch.ones(1024, device="cuda")
whole = torch.empty(1024 * dist.get_world_size(), device="cuda")
work = dist.all_gather_single(whole, part, async_op=True)
work.wait()
norm = whole.norm()
print(norm.item())
