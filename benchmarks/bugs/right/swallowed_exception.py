"""Right: a rank catches the error of a bad sample alone; the collective stands behind it."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
samples = ["1", "x", "3", "4"]
total = torch.zeros(1)
try:
    total += float(samples[rank])
except ValueError:
    print(f"rank {rank}: bad sample")
dist.all_reduce(total)
