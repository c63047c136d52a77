"""Mistake: metrics are reduced every so many of a rank's own samples, which are not as many on each rank.

Class: call ordering
To name: rank 1; dist.all_reduce(metric)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
metric, seen = torch.zeros(1), 0
for _ in range(4):
    seen += 6 if rank == 1 else 8  # a batch
    metric += 1
    if seen % 8 == 0:
        dist.all_reduce(metric)
