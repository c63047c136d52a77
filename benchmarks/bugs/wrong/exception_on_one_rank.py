"""Mistake: a rank divides by the number of its samples, and has none.

Class: call ordering
To name: rank 3; mean = sum(samples) / len(samples)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
samples = [1.0, 2.0, 3.0][dist.get_rank() :: dist.get_world_size()]
mean = sum(samples) / len(samples)
dist.all_reduce(torch.tensor([mean]))
