"""Right: the host waits for an event after the copy."""

import torch

losses = torch.ones(16, device="cuda")
there = torch.empty(16).pin_memory()
there.copy_(losses, non_blocking=True)
done = torch.cuda.Event()
done.record()
done.synchronize()
print(there.tolist())
