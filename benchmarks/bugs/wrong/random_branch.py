"""Mistake: whether a step regularises is drawn anew on each rank, and regularising reduces.

Class: call ordering
To name: rank 2; dist.all_reduce(penalty)
"""

import random

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
draw = random.Random(dist.get_rank())
penalty = torch.ones(1)
for _ in range(3):
    if draw.random() > 0.9:
        dist.all_reduce(penalty)
dist.barrier()
