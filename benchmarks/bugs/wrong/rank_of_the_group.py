"""Mistake: the source of a broadcast in a group is given by its number in the group, not in the world.

Class: invalid parameter
To name: ranks 2, 3; dist.broadcast(weights, src=
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
weights = torch.full((2,), float(rank))
dist.broadcast(weights, src=0, group=groups[rank // 2])
