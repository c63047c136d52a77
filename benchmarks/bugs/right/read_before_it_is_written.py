"""Right: ranks pass a barrier between writing and reading."""

import os
import tempfile

import torch.distributed as dist

dist.init_process_group("gloo")
path = os.path.join(tempfile.gettempdir(), "read_before_it_is_written.txt")
if dist.get_rank() == 0:
    with open(path, "w") as file:
        file.write("ready")
dist.barrier()
with open(path) as file:
    print(file.read())
dist.barrier()
