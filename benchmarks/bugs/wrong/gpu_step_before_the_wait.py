"""Mistake: the optimizer steps by gradients that hooks have begun to reduce, and nobody has waited for.

Class: race on a GPU
To name: every rank; optimizer.step()
Ranks: 2
Check: races
"""

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
optimizer.step()
for work in works:
    work.wait()
