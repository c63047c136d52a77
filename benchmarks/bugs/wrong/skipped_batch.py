"""Mistake: a rank skips a batch in which nothing is labelled, and with it the backward pass of the others.

Class: call ordering
To name: rank 2; loss.backward()
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
for step in range(3):
    labelled = torch.tensor([1.0, 1.0]) * (step != 1 or rank != 2)
    if not labelled.any():
        continue
    loss = (model(torch.ones(2, 2)).squeeze() * labelled).sum()
    loss.backward()
