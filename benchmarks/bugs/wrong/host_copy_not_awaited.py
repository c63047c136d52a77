"""Mistake: a loss is copied to the host without blocking, and read before it is there.

Class: race on a GPU
To name: every rank; print(there.mean())
Ranks: 2
Check: races
"""

import torch

losses = torch.ones(1024, device="cuda")
there = losses.to("cpu", non_blocking=True)
print(there.mean())
