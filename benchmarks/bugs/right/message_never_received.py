"""Right: rank 1 receives as many messages as rank 0 sends."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
parts = torch.ones(3, 4)
if dist.get_rank() == 0:
    for part in parts:
        dist.send(part, dst=1)
else:
    for part in parts:
        dist.recv(part, src=0)
