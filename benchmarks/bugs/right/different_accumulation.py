"""Right: every rank accumulates over as many micro-batches."""

import contextlib

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
num_micro_batches = 2
for number in range(1, 7):
    is_last = number % num_micro_batches == 0
    with contextlib.nullcontext() if is_last else model.no_sync():
        model(torch.ones(2, 2)).sum().backward()
