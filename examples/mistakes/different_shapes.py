"""Mistake: the last batch is smaller on one rank, and the outputs are gathered as if all were alike.

Class: parameter matching
To name: rank 3; dist.all_gather(gathered, outputs)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
samples = torch.arange(14.0).reshape(-1, 1)
own = samples[rank * 4 : (rank + 1) * 4]
outputs = torch.nn.Linear(1, 3)(own).detach()
gathered = [torch.empty_like(outputs) for _ in range(world_size)]
dist.all_gather(gathered, outputs)
