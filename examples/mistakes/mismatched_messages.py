"""Mistake: neighbours in a ring both receive before they send, and so wait for each other.

Class: call ordering
To name: every rank; dist.recv(theirs, (rank - 1) % world_size)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
mine, theirs = torch.full((4,), float(rank)), torch.empty(4)
dist.recv(theirs, (rank - 1) % world_size)
dist.send(mine, (rank + 1) % world_size)
