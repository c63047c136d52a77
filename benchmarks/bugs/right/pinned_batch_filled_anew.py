"""Right: the host waits for the copy before it fills the buffer."""

import torch

staging = torch.empty(1024).pin_memory()
total = torch.zeros(1024, device="cuda")
for number in range(3):
    staging.fill_(float(number))
    total += staging.to("cuda", non_blocking=True)
    torch.cuda.current_stream().synchronize()
print(total.sum().item())
