"""Mistake: an activation is copied to the host on a side stream and freed at once, without record_stream.

Class: race on a GPU
To name: every rank; following = torch.zeros(1024, device="cuda")
Ranks: 2
Check: races
"""

import torch

side = torch.cuda.Stream()
activation = torch.ones(1024, device="cuda")
there = torch.empty(1024).pin_memory()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    there.copy_(activation, non_blocking=True)
del activation
following = torch.zeros(1024, device="cuda")
torch.cuda.synchronize()
print(there.sum().item(), following.sum().item())
