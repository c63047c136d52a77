"""Mistake: the state of a sharded optimizer is gathered where it is saved, on rank 0 alone.

Class: call ordering
To name: rank 0; optimizer.consolidate_state_dict(to=0)
"""

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
if dist.get_rank() == 0:
    optimizer.consolidate_state_dict(to=0)
    print(len(optimizer.state_dict()["state"]))
dist.barrier()
