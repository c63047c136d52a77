"""Mistake: the root scatters fewer parts than there are ranks.

Class: invalid parameter
To name: rank 0; dist.scatter(own, parts, src=0)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
own, parts = torch.empty(2), None
if dist.get_rank() == 0:
    parts = list(torch.ones(3, 2))
dist.scatter(own, parts, src=0)
