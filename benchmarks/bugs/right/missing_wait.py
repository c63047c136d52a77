"""Right: the mean is taken when the sum has come."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(4) * dist.get_rank()
work = dist.all_reduce(total, async_op=True)
work.wait()
mean = total / dist.get_world_size()
print(mean.tolist())
