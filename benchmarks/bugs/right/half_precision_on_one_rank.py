"""Right: all ranks reduce their gradients in half precision."""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
model.register_comm_hook(None, fp16_compress_hook)
model(torch.ones(2, 4)).sum().backward()
