"""Right: every rank makes every group, also those that it is not in."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor_parallel = dist.new_group([0, 1])
everyone = dist.new_group([0, 1, 2, 3])
dist.all_reduce(torch.ones(4), group=everyone)
