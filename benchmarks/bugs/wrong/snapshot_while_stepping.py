"""Mistake: a checkpoint copies weights on a side stream while the optimizer changes them.

Class: race on a GPU
To name: every rank; weight.add_(-0.1)
Ranks: 2
Check: races
"""

import torch

weight = torch.ones(1024, device="cuda")
snapshot = torch.empty(1024).pin_memory()
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    snapshot.copy_(weight, non_blocking=True)
weight.add_(-0.1)
torch.cuda.synchronize()
print(snapshot.sum().item())
