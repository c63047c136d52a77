"""Mistake: a side stream uses activations that the default stream may still be computing.

Class: race on a GPU
To name: every rank; norm = activations.norm()
Ranks: 2
Check: races
"""

import torch

activations = torch.ones(64, 64, device="cuda").relu()
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    norm = activations.norm()
torch.cuda.synchronize()
print(norm.item())
