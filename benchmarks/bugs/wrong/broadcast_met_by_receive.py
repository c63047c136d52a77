"""Mistake: rank 0 broadcasts, and the others receive a message, which is something else.

Class: call ordering
To name: rank 0; dist.broadcast(weights, src=0)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
weights = torch.zeros(4)
if dist.get_rank() == 0:
    weights += 1
    dist.broadcast(weights, src=0)
else:
    dist.recv(weights, src=0)
