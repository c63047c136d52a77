"""Mistake: two ranks reduce in their pair, the others in the world.

Class: parameter matching
To name: ranks 0, 1; dist.all_reduce(total, group=group)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
pair = dist.new_group([0, 1])
group = pair if dist.get_rank() < 2 else dist.group.WORLD
total = torch.ones(1)
dist.all_reduce(total, group=group)
dist.all_reduce(torch.ones(2))
