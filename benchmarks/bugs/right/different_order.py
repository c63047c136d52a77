"""Right: the order of the metrics is that of their names, the same in every process."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
metrics = {"loss": torch.zeros(1), "confusion": torch.zeros(10, 10)}
names = sorted(metrics)
for name in names:
    dist.all_reduce(metrics[name])
