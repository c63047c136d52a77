"""Right: the source of a broadcast in a group is given by its rank in the world."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
weights = torch.full((2,), float(rank))
dist.broadcast(weights, src=rank // 2 * 2, group=groups[rank // 2])
