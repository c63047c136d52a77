"""Mistake: rank 0 leaves when its own work is done, while the others still reduce.

Class: call ordering
To name: rank 0; dist.all_reduce(torch.ones(2))
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
num_steps = 2 if dist.get_rank() == 0 else 3
for _ in range(num_steps):
    dist.all_reduce(torch.ones(2))
dist.destroy_process_group()
