"""Right: a rank keeps its own part."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
parts = torch.ones(2, 3)
if dist.get_rank() == 0:
    for peer, part in enumerate(parts):
        if peer > 0:
            dist.send(part, dst=peer)
else:
    dist.recv(parts[1], src=0)
