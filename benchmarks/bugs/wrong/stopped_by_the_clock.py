"""Mistake: rank 0 stops when its time is up, and tells nobody.

Class: call ordering
To name: rank 0; dist.all_reduce(torch.ones(1))
"""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, began = dist.get_rank(), time.monotonic()
for _ in range(5):
    if rank == 0 and time.monotonic() - began > 0.02:
        break
    time.sleep(0.01)
    dist.all_reduce(torch.ones(1))
