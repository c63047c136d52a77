"""Right: the event is recorded after the copy."""

import torch

losses = torch.ones(16, device="cuda")
there, done = torch.empty(16).pin_memory(), torch.cuda.Event()
there.copy_(losses, non_blocking=True)
done.record()
done.synchronize()
print(there.sum())
