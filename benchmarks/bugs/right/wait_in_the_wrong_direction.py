"""Right: the default stream waits for the side stream."""

import torch

activations = torch.ones(64, 64, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    norm = activations.norm()
torch.cuda.current_stream().wait_stream(side)
total = norm * 2
torch.cuda.synchronize()
print(total.item())
