"""Right: every bucket is waited for."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
groups = [dist.new_group(), dist.new_group()]
buckets = [torch.ones(1024, device="cuda") for _ in groups]
works = [
    dist.all_reduce(bucket, group=group, async_op=True) for bucket, group in zip(buckets, groups, strict=True)
]
for work in works:
    work.wait()
gradient = buckets[0] / 2
torch.cuda.synchronize()
print(gradient.sum().item())
