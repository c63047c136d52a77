"""Right: the side stream waits for the default stream."""

import torch

activations = torch.ones(64, 64, device="cuda").relu()
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    norm = activations.norm()
torch.cuda.synchronize()
print(norm.item())
