"""Mistake: indices are sent as int64 and received as float32.

Class: parameter matching
To name: rank 1; dist.recv(theirs, src=0)
Ranks: 2
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.send(torch.arange(4), dst=1)
else:
    theirs = torch.empty(4)
    dist.recv(theirs, src=0)
