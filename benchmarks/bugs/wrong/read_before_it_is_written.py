"""Mistake: ranks read a file that rank 0 writes, without waiting for it.

Class: files
To name: rank 0; with open(path) as file:
"""

import os
import tempfile

import torch.distributed as dist

dist.init_process_group("gloo")
path = os.path.join(tempfile.gettempdir(), "read_before_it_is_written.txt")
if dist.get_rank() == 0:
    with open(path, "w") as file:
        file.write("ready")
if os.path.exists(path):
    with open(path) as file:
        print(file.read())
dist.barrier()
