"""Right: rank 0 loads the checkpoint before wrapping, which then gives it to all."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
checkpoint = {"weight": torch.ones(1, 2), "bias": torch.ones(1)}
net = torch.nn.Linear(2, 1)
if dist.get_rank() == 0:
    net.load_state_dict(checkpoint)
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
