"""Mistake: a rank takes the maximum of what the others add.

Class: parameter matching
To name: rank 3; dist.all_reduce(total, op=op)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(4) * dist.get_rank()
op = dist.ReduceOp.MAX if dist.get_rank() == 3 else dist.ReduceOp.SUM
dist.all_reduce(total, op=op)
