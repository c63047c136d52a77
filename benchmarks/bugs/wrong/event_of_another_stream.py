"""Mistake: the event is recorded on the stream that has to wait, not on the one that computes.

Class: race on a GPU
To name: every rank; copy = weights.clone()
Ranks: 2
Check: races
"""

import torch

weights = torch.ones(1024, device="cuda")
side, ready = torch.cuda.Stream(), torch.cuda.Event()
weights.mul_(0.9)
ready.record(side)
side.wait_event(ready)
with torch.cuda.stream(side):
    copy = weights.clone()
torch.cuda.synchronize()
print(copy.sum().item())
