"""Mistake: the default stream uses what a side stream may still be computing.

Class: race on a GPU
To name: every rank; total = norm * 2
Ranks: 2
Check: races
"""

import torch

activations = torch.ones(64, 64, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    norm = activations.norm()
total = norm * 2
torch.cuda.synchronize()
print(total.item())
