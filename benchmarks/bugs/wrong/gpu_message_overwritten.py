"""Mistake: a tensor is filled anew on the GPU while it is being sent to the neighbour.

Class: race on a GPU
To name: every rank; buffer.fill_(2)
Ranks: 2
Check: races
"""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
peer = 1 - dist.get_rank()
buffer = torch.ones(1024, device="cuda")
received = torch.empty(1024, device="cuda")
sent = dist.isend(buffer, dst=peer)
there = dist.irecv(received, src=peer)
buffer.fill_(2)
sent.wait()
there.wait()
print(received.sum().item())
