"""Right: all reductions are waited for before the step."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.Linear(16, 16, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
works = []
for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(
        lambda own: works.append(dist.all_reduce(own.grad, async_op=True))
    )
model(torch.ones(4, 16, device="cuda")).sum().backward()
for work in works:
    work.wait()
optimizer.step()
