"""Mistake: a group is made by its members alone, so the next group has other names on other ranks.

Class: call ordering
To name: ranks 0, 1; dist.all_reduce(torch.ones(4), group=everyone)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank in (0, 1):
    tensor_parallel = dist.new_group([0, 1])
everyone = dist.new_group([0, 1, 2, 3])
dist.all_reduce(torch.ones(4), group=everyone)
