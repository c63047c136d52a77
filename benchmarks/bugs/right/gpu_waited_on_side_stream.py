"""Right: the default stream waits for the side stream that has waited for the work."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
total = torch.ones(1024, device="cuda")
side = torch.cuda.Stream()
work = dist.all_reduce(total, async_op=True)
with torch.cuda.stream(side):
    work.wait()
torch.cuda.current_stream().wait_stream(side)
mean = total / dist.get_world_size()
torch.cuda.synchronize()
print(mean.sum().item())
