"""Mistake: the receiver waits for the second message first, and the sender for the first to be received.

Class: call ordering
To name: rank 1; dist.recv(second, src=0, tag=2)
Ranks: 2
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
first, second = torch.ones(1 << 20), torch.ones(1 << 20)
if dist.get_rank() == 0:
    dist.send(first, dst=1, tag=1)
    dist.send(second, dst=1, tag=2)
else:
    dist.recv(second, src=0, tag=2)
    dist.recv(first, src=0, tag=1)
