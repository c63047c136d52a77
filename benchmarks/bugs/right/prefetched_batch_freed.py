"""Right: the default stream is recorded for the batch."""

import torch

loader = [torch.full((1024,), float(number)).pin_memory() for number in range(3)]
copies = torch.cuda.Stream()
total = torch.zeros(1024, device="cuda")
batch = None
for there in loader:
    batch = None
    with torch.cuda.stream(copies):
        batch = there.to("cuda", non_blocking=True)
    torch.cuda.current_stream().wait_stream(copies)
    total += batch
    batch.record_stream(torch.cuda.current_stream())
torch.cuda.synchronize()
print(total.sum().item())
