"""Mistake: one buffer takes two messages at once.

Class: local concurrency
To name: rank 0; works = [dist.irecv(
Ranks: 3
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    theirs = torch.empty(4)
    works = [dist.irecv(theirs, src=peer) for peer in (1, 2)]
    for work in works:
        work.wait()
else:
    dist.send(torch.full((4,), float(rank)), dst=0)
