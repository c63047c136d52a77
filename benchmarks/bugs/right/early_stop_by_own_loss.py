"""Right: the ranks stop early together, by the mean of their losses."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
weight = torch.zeros(1)
target = torch.tensor([1.0, 2.0, 3.0, 0.1])[rank]
for _ in range(5):
    gradient = weight - target
    loss = gradient.square()
    dist.all_reduce(loss)
    if loss.item() / dist.get_world_size() < 0.1:
        break
    dist.all_reduce(gradient)
    weight -= 0.1 * gradient / dist.get_world_size()
