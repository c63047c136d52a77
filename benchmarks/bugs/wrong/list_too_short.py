"""Mistake: a rank gathers into a list of as many tensors as a node has ranks.

Class: invalid parameter
To name: every rank; dist.all_gather(gathered, own)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
own = torch.ones(2)
gathered = [torch.empty(2) for _ in range(2)]
dist.all_gather(gathered, own)
