"""Mistake: a rank calls a collective of a group that it is not in; torch warns, and does nothing.

Class: invalid parameter
To name: rank 2; dist.all_reduce(total, group=pair)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
pair = dist.new_group([0, 1])
total = torch.full((1,), float(rank))
dist.all_reduce(total, group=pair)  # on ranks 2 and 3 the sum is missing
