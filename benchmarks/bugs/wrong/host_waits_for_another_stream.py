"""Mistake: the copy is on a side stream, and the host waits for the default one.

Class: race on a GPU
To name: every rank; print(there.sum())
Ranks: 2
Check: races
"""

import torch

losses = torch.ones(16, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    there = losses.to("cpu", non_blocking=True)
torch.cuda.current_stream().synchronize()
print(there.sum())
