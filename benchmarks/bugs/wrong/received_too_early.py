"""Mistake: what a message brings is read before it has come.

Class: request lifecycle
To name: rank 1; outputs = theirs * 2
Ranks: 2
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
theirs = torch.zeros(4)
if dist.get_rank() == 0:
    dist.send(torch.ones(4), dst=1)
else:
    work = dist.irecv(theirs, src=0)
    outputs = theirs * 2
    work.wait()
    print(outputs.tolist())
