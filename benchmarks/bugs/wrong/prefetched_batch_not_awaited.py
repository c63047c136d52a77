"""Mistake: a batch is copied on a stream of its own, and used before the default stream has waited.

Class: race on a GPU
To name: every rank; loss = batch.square().mean()
Ranks: 2
Check: races
"""

import torch

loader = [torch.full((1024,), float(number)).pin_memory() for number in range(3)]
copies = torch.cuda.Stream()
for there in loader:
    with torch.cuda.stream(copies):
        batch = there.to("cuda", non_blocking=True)
    loss = batch.square().mean()
    batch.record_stream(torch.cuda.current_stream())
torch.cuda.synchronize()
print(loss.item())
