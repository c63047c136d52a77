"""Mistake: a rank reduces its gradients in half precision, by a hook that the others have not.

Class: parameter matching
To name: rank 2; model(torch.ones(2, 4)).sum().backward()
"""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
if dist.get_rank() == 2:
    model.register_comm_hook(None, fp16_compress_hook)
model(torch.ones(2, 4)).sum().backward()
