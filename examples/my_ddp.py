"""Our DistributedDataParallel, with an all-reduce of your choice, even your own.

torchrun --nproc-per-node 2 examples/my_ddp.py
testbed run --ranks 8 --network dgx-h100 --compute h100 examples/my_ddp.py
"""

import torch
import torch.distributed as dist

from ddp import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(
    torch.nn.Linear(8, 1), algorithm="examples/my_ring.py:my_ring", strategy="wait_free", timeout=60
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.ones(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(f"{dist.get_world_size()} ranks have trained the same model")
dist.destroy_process_group()
