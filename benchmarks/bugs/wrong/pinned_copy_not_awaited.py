"""Mistake: pinned memory is listed while the copy into it is under way.

Class: race on a GPU
To name: every rank; print(there.tolist())
Ranks: 2
Check: races
"""

import torch

losses = torch.ones(16, device="cuda")
there = torch.empty(16).pin_memory()
there.copy_(losses, non_blocking=True)
print(there.tolist())
