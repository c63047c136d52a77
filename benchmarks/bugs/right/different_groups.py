"""Right: all ranks reduce in the world."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
pair = dist.new_group([0, 1])
group = dist.group.WORLD
total = torch.ones(1)
dist.all_reduce(total, group=group)
dist.all_reduce(torch.ones(2))
