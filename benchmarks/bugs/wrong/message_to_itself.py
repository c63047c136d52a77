"""Mistake: a rank sends to itself and waits until it is received, before it receives.

Class: call ordering
To name: rank 0; dist.send(part, dst=peer)
Ranks: 2
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
parts = torch.ones(2, 3)
if dist.get_rank() == 0:
    for peer, part in enumerate(parts):
        dist.send(part, dst=peer)
else:
    dist.recv(parts[1], src=0)
