"""Right: the receiver takes the messages in the order in which the sender waits for them."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
first, second = torch.ones(1 << 20), torch.ones(1 << 20)
if dist.get_rank() == 0:
    dist.send(first, dst=1, tag=1)
    dist.send(second, dst=1, tag=2)
else:
    dist.recv(first, src=0, tag=1)
    dist.recv(second, src=0, tag=2)
