"""Mistake: what dist.reduce has left is used on all ranks, but only its destination has the sum.

Class: call ordering
To name: ranks 0, 2; dist.barrier()
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
failures = torch.tensor([1.0 if dist.get_rank() == 2 else 0.0])
dist.reduce(failures, dst=0)
for _ in range(2):
    if failures.item() >= 1:
        break
    dist.barrier()
