"""Mistake: of two stages of a pipeline each waits for the other's part before it sends its own.

Class: call ordering
To name: every rank; dist.recv(gradients, src=1)
Ranks: 2
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
activations, gradients = torch.ones(2, 4), torch.empty(2, 4)
if dist.get_rank() == 0:
    dist.recv(gradients, src=1)
    dist.send(activations, dst=1)
else:
    dist.recv(activations, src=0)
    dist.send(activations * 2, dst=0)
