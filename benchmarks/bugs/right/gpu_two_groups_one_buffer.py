"""Right: the first reduction is waited for before the second."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
other = dist.new_group()
total = torch.ones(1024, device="cuda")
first = dist.all_reduce(total, async_op=True)
first.wait()
second = dist.all_reduce(total, group=other, async_op=True)
second.wait()
print(total.sum().item())
