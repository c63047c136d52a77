"""Mistake: a rank in two groups calls them in another order than its partners, who wait for each other.

Class: call ordering
To name: rank 3; dist.all_reduce(total, group=group)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
own = [rows[rank // 2], columns[rank % 2]]
if rank in (0, 3):
    own.reverse()
total = torch.ones(1)
for group in own:
    dist.all_reduce(total, group=group)
