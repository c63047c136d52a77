"""Right: rank 0 leaves after the last collective of all."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
num_steps = 3
for _ in range(num_steps):
    dist.all_reduce(torch.ones(2))
dist.destroy_process_group()
