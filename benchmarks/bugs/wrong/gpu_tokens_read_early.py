"""Mistake: experts compute on tokens that an all-to-all has yet to bring.

Class: race on a GPU
To name: every rank; outputs = received.relu()
Ranks: 2
Check: races
"""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
tokens = torch.ones(64, 16, device="cuda")
received = torch.empty_like(tokens)
work = dist.all_to_all_single(received, tokens, async_op=True)
outputs = received.relu()
work.wait()
print(outputs.sum().item())
