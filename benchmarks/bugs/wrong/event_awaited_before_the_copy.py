"""Mistake: the host waits for an event that is recorded before the copy.

Class: race on a GPU
To name: every rank; print(there.sum())
Ranks: 2
Check: races
"""

import torch

losses = torch.ones(16, device="cuda")
there, done = torch.empty(16).pin_memory(), torch.cuda.Event()
done.record()
there.copy_(losses, non_blocking=True)
done.synchronize()
print(there.sum())
