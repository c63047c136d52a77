"""Right: the value is asked for on the stream that computes it."""

import torch

gradient = torch.ones(1024, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    norm = gradient.norm()
    print(norm.item())
torch.cuda.synchronize()
