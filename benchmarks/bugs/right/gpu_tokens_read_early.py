"""Right: the all-to-all is waited for before experts compute."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
tokens = torch.ones(64, 16, device="cuda")
received = torch.empty_like(tokens)
work = dist.all_to_all_single(received, tokens, async_op=True)
work.wait()
outputs = received.relu()
print(outputs.sum().item())
