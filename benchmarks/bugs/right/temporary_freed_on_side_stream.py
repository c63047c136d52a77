"""Right: the side stream is recorded for the temporary."""

import torch

side = torch.cuda.Stream()
temporary = torch.ones(1024, device="cuda")
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    total = temporary.sum()
temporary.record_stream(side)
del temporary
following = torch.zeros(1024, device="cuda")
torch.cuda.synchronize()
print(total.item(), following.sum().item())
