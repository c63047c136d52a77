"""Right: the sum is waited for before the mean is taken."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
total = torch.ones(1024, device="cuda")
work = dist.all_reduce(total, async_op=True)
work.wait()
mean = total / dist.get_world_size()
print(mean.sum().item())
