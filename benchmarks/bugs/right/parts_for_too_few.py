"""Right: the root scatters a part for every rank."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
own, parts = torch.empty(2), None
if dist.get_rank() == 0:
    parts = list(torch.ones(dist.get_world_size(), 2))
dist.scatter(own, parts, src=0)
