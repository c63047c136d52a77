"""Right: the default stream waits for the side stream before it reduces."""

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
torch.cuda.current_stream().wait_stream(side)
dist.all_reduce(bucket)
torch.cuda.synchronize()
print(bucket.sum().item())
