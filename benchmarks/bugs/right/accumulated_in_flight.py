"""Right: gradients are reduced when the last micro-batch has been added."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
model(torch.ones(2, 4)).sum().backward()
model(torch.ones(2, 4)).sum().backward()
work = dist.all_reduce(model.weight.grad, async_op=True)
work.wait()
