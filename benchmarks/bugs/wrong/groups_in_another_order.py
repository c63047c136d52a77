"""Mistake: every rank makes its own group first, so the groups are made in another order.

Class: call ordering
To name: ranks 2, 3; own = dist.new_group(mine)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
mine, other = ([0, 1], [2, 3]) if rank < 2 else ([2, 3], [0, 1])
own = dist.new_group(mine)
dist.new_group(other)
total = torch.ones(1)
dist.all_reduce(total, group=own)
