"""Right: what is sent as int32 is received as int32."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.send(torch.arange(4, dtype=torch.int32), dst=1)
else:
    theirs = torch.empty(4, dtype=torch.int32)
    dist.recv(theirs, src=0)
    print(theirs.tolist())
