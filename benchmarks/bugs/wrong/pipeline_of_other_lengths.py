"""Mistake: the stages of a pipeline count their micro-batches differently.

Class: call ordering
To name: rank 1; dist.recv(activations, src=0)
Ranks: 2
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
batch = torch.ones(7, 2)
if dist.get_rank() == 0:
    for micro_batch in batch.split(2):
        dist.send(micro_batch[:1].contiguous(), dst=1)
else:
    activations = torch.empty(1, 2)
    for _ in range(len(batch) // 2 + 2):
        dist.recv(activations, src=0)
