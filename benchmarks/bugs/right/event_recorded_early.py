"""Right: the event is recorded after the kernel."""

import torch

weights = torch.ones(1024, device="cuda")
side, ready = torch.cuda.Stream(), torch.cuda.Event()
weights.mul_(0.9)
ready.record()
side.wait_event(ready)
with torch.cuda.stream(side):
    copy = weights.clone()
torch.cuda.synchronize()
print(copy.sum().item())
