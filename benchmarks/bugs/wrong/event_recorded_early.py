"""Mistake: the event is recorded before the kernel that a side stream has to wait for.

Class: race on a GPU
To name: every rank; copy = weights.clone()
Ranks: 2
Check: races
"""

import torch

weights = torch.ones(1024, device="cuda")
side, ready = torch.cuda.Stream(), torch.cuda.Event()
ready.record()
weights.mul_(0.9)
side.wait_event(ready)
with torch.cuda.stream(side):
    copy = weights.clone()
torch.cuda.synchronize()
print(copy.sum().item())
