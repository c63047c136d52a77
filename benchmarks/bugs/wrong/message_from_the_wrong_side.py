"""Mistake: every rank sends to the right and receives from the right.

Class: parameter matching
To name: every rank; work.wait()
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
theirs = torch.empty(2)
works = [
    dist.isend(torch.ones(2), (rank + 1) % world_size),
    dist.irecv(theirs, (rank + 1) % world_size),
]
for work in works:
    work.wait()
