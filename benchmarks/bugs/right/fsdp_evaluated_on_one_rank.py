"""Right: every rank evaluates the sharded model."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 4))
fully_shard(model, mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
with torch.no_grad():
    print(model(torch.ones(1, 4)).sum().item())
dist.barrier()
