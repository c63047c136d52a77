"""Right: gathered outputs are put together when all are there."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
own = torch.ones(2) * dist.get_rank()
gathered = [torch.zeros(2) for _ in range(dist.get_world_size())]
work = dist.all_gather(gathered, own, async_op=True)
work.wait()
whole = torch.cat(gathered)
print(whole.tolist())
