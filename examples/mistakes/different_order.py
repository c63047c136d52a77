"""Mistake: the order of the metrics is that of a set, which is another one in every process.

Class: call ordering
To name: rank 2; dist.all_reduce(metrics[name])
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
metrics = {"loss": torch.zeros(1), "confusion": torch.zeros(10, 10)}
names = sorted(metrics, reverse=rank == 2)  # what iterating over a set comes to
for name in names:
    dist.all_reduce(metrics[name])
