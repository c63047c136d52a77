"""Right: the step comes when all gradients have."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4) * dist.get_rank()).sum().backward()
works = [dist.all_reduce(parameter.grad, async_op=True) for parameter in model.parameters()]
for work in works:
    work.wait()
optimizer.step()
