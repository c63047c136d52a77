"""Mistake: rank 0 reduces to itself, the others reduce for all.

Class: call ordering
To name: rank 0; dist.reduce(total, dst=0)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(2)
if dist.get_rank() == 0:
    dist.reduce(total, dst=0)
    print(total)
else:
    dist.all_reduce(total)
dist.barrier()
