"""Right: the ranks draw alike, from a generator with a seed of their own choice, whether to regularise."""

import random

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
draw = random.Random(1)
penalty = torch.ones(1)
for _ in range(3):
    if draw.random() > 0.9:
        dist.all_reduce(penalty)
dist.barrier()
