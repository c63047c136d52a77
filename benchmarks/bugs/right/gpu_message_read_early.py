"""Right: the message is waited for before the stage computes."""

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
sent.wait()
there.wait()
outputs = received * 2
print(outputs.sum().item())
