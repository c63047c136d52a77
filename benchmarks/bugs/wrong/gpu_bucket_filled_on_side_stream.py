"""Mistake: a bucket is filled on a side stream, and reduced from the default stream, which does not wait.

Class: race on a GPU
To name: every rank; dist.all_reduce(bucket)
Ranks: 2
Check: races
"""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
bucket = torch.zeros(1024, device="cuda")
gradient = torch.ones(1024, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    bucket.copy_(gradient)
dist.all_reduce(bucket)
torch.cuda.synchronize()
print(bucket.sum().item())
