"""Right: batches are normalised by the statistics of the whole batch."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
rank, world_size = dist.get_rank(), dist.get_world_size()
net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1)).double()
net = torch.nn.SyncBatchNorm.convert_sync_batchnorm(net)
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.sin(torch.arange(16.0, dtype=torch.float64)).reshape(8, 2)
for _ in range(2):
    model(batch[rank::world_size]).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
