"""Right: each step in flight has a buffer of its own."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
works = []
for step in range(2):
    bucket = torch.empty(1024, device="cuda")
    bucket.fill_(float(step))
    works.append(dist.all_reduce(bucket, async_op=True))
for work in works:
    work.wait()
print(bucket.sum().item())
