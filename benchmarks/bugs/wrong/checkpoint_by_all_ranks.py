"""Mistake: every rank writes the checkpoint, to the same file.

Class: files
To name: ranks 0, 1, 2, 3; torch.save(model.state_dict(), path)
"""

import os
import tempfile

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
path = os.path.join(tempfile.gettempdir(), "checkpoint_by_all_ranks.pt")
model = torch.nn.Linear(2, 1)
torch.save(model.state_dict(), path)
dist.barrier()
if dist.get_rank() == 0:
    os.remove(path)
