"""Mistake: a loader fills its pinned buffer with the next batch while the last is still being copied.

Class: race on a GPU
To name: every rank; staging.fill_(float(number))
Ranks: 2
Check: races
"""

import torch

staging = torch.empty(1024).pin_memory()
total = torch.zeros(1024, device="cuda")
for number in range(3):
    staging.fill_(float(number))
    total += staging.to("cuda", non_blocking=True)
print(total.sum().item())
