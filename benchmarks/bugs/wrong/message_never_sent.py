"""Mistake: a rank waits for a message that its neighbour sends only under a condition.

Class: call ordering
To name: rank 0; dist.recv(theirs, src=0)
Ranks: 2
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
found = torch.zeros(1)
if dist.get_rank() == 0:
    if found.item() > 0:
        dist.send(found, dst=1)
else:
    theirs = torch.empty(1)
    dist.recv(theirs, src=0)
