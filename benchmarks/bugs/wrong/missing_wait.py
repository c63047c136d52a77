"""Mistake: the mean is taken of a sum that is still on its way.

Class: request lifecycle
To name: every rank; mean = total / dist.get_world_size()
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(4) * dist.get_rank()
work = dist.all_reduce(total, async_op=True)
mean = total / dist.get_world_size()
work.wait()
print(mean.tolist())
