"""Mistake: neighbours in a ring all send before they receive, which works as long as messages are buffered.

Class: call ordering
To name: every rank; dist.send(mine, (rank + 1) % world_size)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
mine, theirs = torch.full((1 << 20,), float(rank)), torch.empty(1 << 20)
dist.send(mine, (rank + 1) % world_size)
dist.recv(theirs, (rank - 1) % world_size)
