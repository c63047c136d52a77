"""Mistake: every rank believes itself the source of the weights.

Class: parameter matching
To name: ranks 0; dist.broadcast(weights, src=source)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
weights = torch.full((4,), float(dist.get_rank()))
source = dist.get_rank()
dist.broadcast(weights, src=source)
