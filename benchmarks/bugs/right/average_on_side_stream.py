"""Right: the step waits for the average."""

import torch

weight = torch.ones(1024, device="cuda")
average = weight.clone()
side = torch.cuda.Stream()
for _ in range(2):
    weight.add_(-0.1)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        average.lerp_(weight, 0.1)
    torch.cuda.current_stream().wait_stream(side)
torch.cuda.synchronize()
print(average.sum().item())
