"""Right: rank 0 sends before it receives, which opens the circle."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
mine, theirs = torch.full((4,), float(rank)), torch.empty(4)
if rank == 0:
    dist.send(mine, (rank + 1) % world_size)
dist.recv(theirs, (rank - 1) % world_size)
if rank > 0:
    dist.send(mine, (rank + 1) % world_size)
