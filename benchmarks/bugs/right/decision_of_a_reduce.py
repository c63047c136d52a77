"""Right: an all-reduce gives every rank the sum, by which all decide alike."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
failures = torch.tensor([1.0 if dist.get_rank() == 2 else 0.0])
dist.all_reduce(failures)
for _ in range(2):
    if failures.item() >= 1:
        break
    dist.barrier()
