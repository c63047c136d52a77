"""Right: a rank receives as much as is sent."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.send(torch.ones(8), dst=1)
else:
    theirs = torch.empty(8)
    dist.recv(theirs, src=0)
