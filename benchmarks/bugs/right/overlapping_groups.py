"""Right: rows before columns, on every rank."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
own = [rows[rank // 2], columns[rank % 2]]
total = torch.ones(1)
for group in own:
    dist.all_reduce(total, group=group)
