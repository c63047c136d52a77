"""Mistake: the norm is computed on a side stream, and its value asked for on the default one.

Class: race on a GPU
To name: every rank; print(norm.item())
Ranks: 2
Check: races
"""

import torch

gradient = torch.ones(1024, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    norm = gradient.norm()
print(norm.item())
torch.cuda.synchronize()
