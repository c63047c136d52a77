"""Right: the ranks of a group alone call its collectives."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
pair = dist.new_group([0, 1])
total = torch.full((1,), float(rank))
if rank in (0, 1):
    dist.all_reduce(total, group=pair)
