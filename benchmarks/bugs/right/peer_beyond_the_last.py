"""Right: the last rank sends to nobody."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
mine, theirs = torch.ones(2), torch.empty(2)
if rank > 0:
    dist.recv(theirs, rank - 1)
if rank < world_size - 1:
    dist.send(mine, rank + 1)
