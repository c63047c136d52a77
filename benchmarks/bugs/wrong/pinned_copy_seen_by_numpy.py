"""Mistake: NumPy looks into pinned memory while the copy into it is under way.

Class: race on a GPU
To name: every rank; print(there.numpy().sum())
Ranks: 2
Check: races
"""

import torch

losses = torch.ones(16, device="cuda")
there = torch.empty(16).pin_memory()
there.copy_(losses, non_blocking=True)
print(there.numpy().sum())
