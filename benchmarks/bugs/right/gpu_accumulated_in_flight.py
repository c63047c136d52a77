"""Right: the reduction is waited for before the next micro-batch adds."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
gradient = torch.ones(1024, device="cuda")
work = dist.all_reduce(gradient, async_op=True)
work.wait()
gradient += 1
print(gradient.sum().item())
