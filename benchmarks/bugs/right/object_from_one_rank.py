"""Right: every rank takes part in the broadcast of the settings."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
settings = [None]
if dist.get_rank() == 0:
    settings = [{"lr": 0.1}]
dist.broadcast_object_list(settings, src=0)
dist.all_reduce(torch.ones(1))
