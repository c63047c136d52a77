"""Right: the default stream waits for the copy before the memory is used again."""

import torch

side = torch.cuda.Stream()
activation = torch.ones(1024, device="cuda")
there = torch.empty(1024).pin_memory()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    there.copy_(activation, non_blocking=True)
torch.cuda.current_stream().wait_stream(side)
del activation
following = torch.zeros(1024, device="cuda")
torch.cuda.synchronize()
print(there.sum().item(), following.sum().item())
