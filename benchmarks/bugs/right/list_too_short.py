"""Right: there is a tensor for every rank of the group."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
own = torch.ones(2)
gathered = [torch.empty(2) for _ in range(dist.get_world_size())]
dist.all_gather(gathered, own)
