"""Right: the reduce-scatter is waited for before its input is zeroed."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
gradients = torch.ones(1024 * dist.get_world_size(), device="cuda")
shard = torch.empty(1024, device="cuda")
work = dist.reduce_scatter_single(shard, gradients, async_op=True)
work.wait()
gradients.zero_()
print(shard.sum().item())
