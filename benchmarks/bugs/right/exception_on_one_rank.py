"""Right: a rank without samples has a mean of zero."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
samples = [1.0, 2.0, 3.0][dist.get_rank() :: dist.get_world_size()]
mean = sum(samples) / max(1, len(samples))
dist.all_reduce(torch.tensor([mean]))
