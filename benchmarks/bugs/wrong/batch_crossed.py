"""Mistake: one stage reduces and then sends a batch, the other receives and then reduces.

Class: call ordering
To name: no rank; works = [dist.all_reduce(norm, async_op=True), *dist.batch_isend_irecv(batch)]
Ranks: 2
"""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
rank = dist.get_rank()
activations, norm = torch.ones(1024, device="cuda"), torch.ones(4, device="cuda")
dist.all_reduce(norm)
operation = dist.isend if rank == 0 else dist.irecv
batch = [dist.P2POp(operation, activations, 1 - rank)]
if rank == 0:
    works = [dist.all_reduce(norm, async_op=True), *dist.batch_isend_irecv(batch)]
else:
    works = [*dist.batch_isend_irecv(batch), dist.all_reduce(norm, async_op=True)]
for work in works:
    work.wait()
