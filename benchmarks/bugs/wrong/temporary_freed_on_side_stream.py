"""Mistake: a temporary is freed while a side stream reads it, and its memory given to the next tensor.

Class: race on a GPU
To name: every rank; following = torch.zeros(1024, device="cuda")
Ranks: 2
Check: races
"""

import torch

side = torch.cuda.Stream()
temporary = torch.ones(1024, device="cuda")
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    total = temporary.sum()
del temporary
following = torch.zeros(1024, device="cuda")
torch.cuda.synchronize()
print(total.item(), following.sum().item())
