"""Mistake: a weight and a bias are received in another order than they are sent.

Class: call ordering
To name: rank 1; dist.recv(bias, src=0)
Ranks: 2
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
weight, bias = torch.ones(4, 4), torch.ones(4)
if dist.get_rank() == 0:
    dist.send(weight, dst=1)
    dist.send(bias, dst=1)
else:
    dist.recv(bias, src=0)
    dist.recv(weight, src=0)
