"""Right: the reduction is waited for before gradients are cleared."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
weight = torch.ones(1024, device="cuda")
gradient = torch.ones(1024, device="cuda")
work = dist.all_reduce(gradient, async_op=True)
work.wait()
weight -= 0.1 * gradient
gradient.zero_()
print(weight.sum().item())
