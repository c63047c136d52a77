"""Mistake: bits of int32 are received as float32, which are as many bytes.

Class: parameter matching
To name: rank 1; dist.recv(theirs, src=0)
Ranks: 2
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.send(torch.arange(4, dtype=torch.int32), dst=1)
else:
    theirs = torch.empty(4)
    dist.recv(theirs, src=0)
    print(theirs.tolist())
