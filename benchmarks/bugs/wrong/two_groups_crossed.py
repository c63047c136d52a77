"""Mistake: of two groups with the same members, some ranks use the one first and some the other.

Class: call ordering
To name: rank 2; dist.all_reduce(torch.ones(4), group=group)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
groups = [dist.new_group([0, 1, 2, 3]), dist.new_group([0, 1, 2, 3])]
if dist.get_rank() == 2:
    groups.reverse()
for group in groups:
    dist.all_reduce(torch.ones(4), group=group)
