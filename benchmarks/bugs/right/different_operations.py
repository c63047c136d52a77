"""Right: all ranks add."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(4) * dist.get_rank()
op = dist.ReduceOp.SUM
dist.all_reduce(total, op=op)
