"""Right: the host waits for the stream of the copy."""

import torch

losses = torch.ones(16, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    there = losses.to("cpu", non_blocking=True)
side.synchronize()
print(there.sum())
