"""Mistake: a rank's share of the data is the place in which it came to the store.

Class: message race
To name: no rank; store.add("places", 1)
Ranks: 3
Check: orders
"""

import torch.distributed as dist

dist.init_process_group("gloo")
store = dist.distributed_c10d._get_default_store()
share = store.add("places", 1) - 1
print(f"share {share} of {dist.get_world_size()}")
