"""Right: the default stream waits for the copies' stream."""

import torch

loader = [torch.full((1024,), float(number)).pin_memory() for number in range(3)]
copies = torch.cuda.Stream()
for there in loader:
    with torch.cuda.stream(copies):
        batch = there.to("cuda", non_blocking=True)
    torch.cuda.current_stream().wait_stream(copies)
    loss = batch.square().mean()
    batch.record_stream(torch.cuda.current_stream())
torch.cuda.synchronize()
print(loss.item())
