"""Right: indices are sent and received as int64."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.send(torch.arange(4), dst=1)
else:
    theirs = torch.empty(4, dtype=torch.int64)
    dist.recv(theirs, src=0)
