"""Mistake: an average of the weights is updated on a side stream while the next step changes them.

Class: race on a GPU
To name: every rank; weight.add_(-0.1)
Ranks: 2
Check: races
"""

import torch

weight = torch.ones(1024, device="cuda")
average = weight.clone()
side = torch.cuda.Stream()
for _ in range(2):
    weight.add_(-0.1)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        average.lerp_(weight, 0.1)
torch.cuda.synchronize()
print(average.sum().item())
