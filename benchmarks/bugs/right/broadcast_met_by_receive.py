"""Right: every rank takes part in the broadcast, the others as receivers."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
weights = torch.zeros(4)
if dist.get_rank() == 0:
    weights += 1
    dist.broadcast(weights, src=0)
else:
    dist.broadcast(weights, src=0)
