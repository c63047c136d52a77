"""Mistake: a rank catches the error of a bad sample, and so passes over the collective behind it.

Class: call ordering
To name: rank 1; dist.all_reduce(total)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
samples = ["1", "x", "3", "4"]
total = torch.zeros(1)
try:
    total += float(samples[rank])
    dist.all_reduce(total)
except ValueError:
    print(f"rank {rank}: bad sample")
