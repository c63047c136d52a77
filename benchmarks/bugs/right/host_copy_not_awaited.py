"""Right: the host waits for the stream before it reads."""

import torch

losses = torch.ones(1024, device="cuda")
there = losses.to("cpu", non_blocking=True)
torch.cuda.current_stream().synchronize()
print(there.mean())
