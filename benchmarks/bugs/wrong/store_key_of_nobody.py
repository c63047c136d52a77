"""Mistake: ranks wait for a key of the store that rank 0 spells otherwise.

Class: call ordering
To name: ranks 1, 2, 3; store.wait(["data/ready"])
"""

import torch.distributed as dist

dist.init_process_group("gloo")
store = dist.distributed_c10d._get_default_store()
if dist.get_rank() == 0:
    store.set("data-ready", "1")
else:
    store.wait(["data/ready"])
