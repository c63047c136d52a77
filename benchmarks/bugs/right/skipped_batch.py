"""Right: a batch in which nothing is labelled gives a loss of zero, which goes through backward."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
for step in range(3):
    labelled = torch.tensor([1.0, 1.0]) * (step != 1 or rank != 2)
    loss = (model(torch.ones(2, 2)).squeeze() * labelled).sum()
    loss.backward()
