"""Right: all ranks count in float32."""

import numpy as np
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
accuracy = np.float64(0.75) if dist.get_rank() == 1 else 0.75
total = torch.tensor(accuracy, dtype=torch.float32).reshape(1)
dist.all_reduce(total)
