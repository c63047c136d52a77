"""Mistake: each rank stops early by its own loss, so one leaves the loop while the others still reduce.

Class: call ordering
To name: rank 3; dist.all_reduce(gradient)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
weight = torch.zeros(1)
target = torch.tensor([1.0, 2.0, 3.0, 0.1])[rank]
for _ in range(5):
    gradient = weight - target
    loss = gradient.square().item()
    if loss < 0.1:
        break
    dist.all_reduce(gradient)
    weight -= 0.1 * gradient / dist.get_world_size()
