"""Mistake: rank 0 alone broadcasts the settings, which every rank has to ask for.

Class: call ordering
To name: rank 0; dist.broadcast_object_list(settings, src=0)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
settings = [None]
if dist.get_rank() == 0:
    settings = [{"lr": 0.1}]
    dist.broadcast_object_list(settings, src=0)
dist.all_reduce(torch.ones(1))
