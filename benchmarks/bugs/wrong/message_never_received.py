"""Mistake: rank 0 sends three messages, and rank 1 receives two.

Class: resource leak
To name: rank 0; dist.send(part, dst=1)
Ranks: 2
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
parts = torch.ones(3, 4)
if dist.get_rank() == 0:
    for part in parts:
        dist.send(part, dst=1)
else:
    for part in parts[:2]:
        dist.recv(part, src=0)
