"""Right: rank 0 writes the checkpoint."""

import os
import tempfile

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
path = os.path.join(tempfile.gettempdir(), "checkpoint_by_all_ranks.pt")
model = torch.nn.Linear(2, 1)
if dist.get_rank() == 0:
    torch.save(model.state_dict(), path)
dist.barrier()
if dist.get_rank() == 0:
    os.remove(path)
