"""Right: a message is sent and awaited under one tag."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.send(torch.ones(4), dst=1, tag=1)
elif dist.get_rank() == 1:
    dist.recv(torch.empty(4), src=0, tag=1)
