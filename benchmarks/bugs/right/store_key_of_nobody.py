"""Right: rank 0 sets the key that the others wait for."""

import torch.distributed as dist

dist.init_process_group("gloo")
store = dist.distributed_c10d._get_default_store()
if dist.get_rank() == 0:
    store.set("data/ready", "1")
else:
    store.wait(["data/ready"])
