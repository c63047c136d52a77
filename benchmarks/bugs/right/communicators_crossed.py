"""Right: every rank issues the reductions of two groups in one order."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
other = dist.new_group()
loss, norm = torch.ones(1024, device="cuda"), torch.ones(4, device="cuda")


def reduce_loss():
    return dist.all_reduce(loss, async_op=True)


def reduce_norm():
    return dist.all_reduce(norm, group=other, async_op=True)


reductions = [reduce_loss, reduce_norm]
for work in [reduction() for reduction in reductions]:
    work.wait()
