"""Mistake: the ranks that wait for the data to be prepared pass a barrier that rank 0 has no counterpart of.

Class: call ordering
To name: rank 0; dist.barrier()
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
data = torch.zeros(2)
if dist.get_rank() == 0:
    data += 1  # prepare
else:
    dist.barrier()
dist.all_reduce(data)
