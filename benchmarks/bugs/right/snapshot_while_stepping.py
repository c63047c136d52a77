"""Right: the optimizer waits for the copy."""

import torch

weight = torch.ones(1024, device="cuda")
snapshot = torch.empty(1024).pin_memory()
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    snapshot.copy_(weight, non_blocking=True)
torch.cuda.current_stream().wait_stream(side)
weight.add_(-0.1)
torch.cuda.synchronize()
print(snapshot.sum().item())
