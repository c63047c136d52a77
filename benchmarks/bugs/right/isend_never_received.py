"""Right: rank 1 receives the message, and rank 0 waits until it is gone."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.isend(torch.ones(4), dst=1).wait()
else:
    dist.recv(torch.empty(4), src=0)
dist.barrier()
