"""Mistake: the last rank sends to a neighbour that does not exist.

Class: invalid parameter
To name: rank 3; dist.send(mine, rank + 1)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
mine, theirs = torch.ones(2), torch.empty(2)
if rank > 0:
    dist.recv(theirs, rank - 1)
dist.send(mine, rank + 1)
