"""Mistake: rank 0 alone evaluates a sharded model, whose forward pass gathers the shards.

Class: call ordering
To name: rank 0; print(model(torch.ones(1, 4)).sum().item())
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 4))
fully_shard(model, mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
with torch.no_grad():
    if dist.get_rank() == 0:
        print(model(torch.ones(1, 4)).sum().item())
dist.barrier()
