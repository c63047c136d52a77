"""Right: rank 0 passes the barrier when it has prepared the data, and the others wait in it."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
data = torch.zeros(2)
if dist.get_rank() == 0:
    data += 1  # prepare
    dist.barrier()
else:
    dist.barrier()
dist.all_reduce(data)
