"""Mistake: a buffer is filled anew while it is being sent.

Class: local concurrency
To name: rank 0; buffer.fill_(float(number))
Ranks: 2
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
buffer = torch.empty(1 << 18)
work = None
for number in range(3):
    if dist.get_rank() == 0:
        buffer.fill_(float(number))
        if work is not None:
            work.wait()
        work = dist.isend(buffer, dst=1)
    else:
        dist.recv(buffer, src=0)
if work is not None:
    work.wait()
