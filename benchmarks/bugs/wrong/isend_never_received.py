"""Mistake: rank 0 starts to send a message, which nobody receives, and does not look back.

Class: resource leak
To name: rank 0; dist.isend(torch.ones(4), dst=1)
Ranks: 2
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.isend(torch.ones(4), dst=1)
dist.barrier()
